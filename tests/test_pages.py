"""Every op has its page: the headings in their order, and every example by hand comes out as it says."""
from __future__ import annotations

import doctest
import inspect
import re
import sys

import pytest

from minitx import ops
from minitx.op import registry

HEADINGS = [
    "for", "equation", "where", "by hand", "backward", "why", "saved", "cost", "differs from", "goes wrong", "exercise",
    "source",
]  # fmt: skip
WHOLE = [
    "linear", "embedding", "softmax", "log_softmax", "layer_norm", "gelu", "dropout", "attention", "cross_entropy",
]  # fmt: skip
pages = pytest.mark.parametrize("name", list(registry))


def page(name):
    """The text under each heading, in the order of the page."""
    text = inspect.cleandoc(registry[name].__doc__ or "")
    parts = re.split(r"^(\S[^:\n]*):[ \n]", text, flags=re.M)
    assert not parts[0].strip(), f"{name}: the page begins with a heading, not with {parts[0]!r}"
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_public_op_is_an_op():
    names = {name for name in ops.__all__ if name != "operators"}
    assert names == set(registry)
    assert all(getattr(ops, name) is registry[name] for name in names)


@pages
def test_headings(name):
    found = list(page(name))
    assert set(found) <= set(HEADINGS)
    assert found == sorted(found, key=HEADINGS.index)
    assert all(text.strip() for text in page(name).values())
    assert {"for", "backward"} <= set(found)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_page(name):
    assert list(page(name)) == HEADINGS


@pages
def test_first_sentence(name):
    assert page(name)["for"].rstrip().endswith((".", ":"))


@pages
def test_terms_are_numbered_from_one(name):
    """(term 1), (term 2) ... on the page, in each part of the backward; the source uses the same numbers."""
    numbers = [int(n) for n in re.findall(r"\(term (\d)\)", page(name)["backward"])]
    for before, number in zip([0, *numbers], numbers):
        assert number in (1, before + 1)


@pages
def test_by_hand(name):
    op = registry[name]
    examples = page(name).get("by hand")
    if examples is None:
        pytest.skip("a bare formula")
    namespace = {"np": __import__("numpy"), **vars(sys.modules[op.__module__])}
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(op), namespace, name, None, 0)
    assert test.examples, "by hand is an example: >>> ..."
    assert examples.count(">>>") == len(test.examples), "examples stand under `by hand`"
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    assert runner.run(test, out=report.append).failed == 0, "".join(report)


def test_exercises_have_different_names():
    slugs = [page(name)["exercise"].strip() for name in registry if "exercise" in page(name)]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[a-z][a-z-]*", slug) for slug in slugs)
