"""Words: both languages have the same keys and placeholders, neither is stale, and no key of the code is missing."""
import ast
import re
from pathlib import Path

import pytest

from minitx.learn import language
from minitx.learn.finding import FACTS
from minitx.learn.language import LANGUAGES, WORDS, digest, leaves, mark, placeholders, words
from minitx.learn.render import sentence
from minitx.learn.shelf import slugs

HERE = Path(language.__file__).parent
NAMES = sorted({path.stem for lang in LANGUAGES for path in (WORDS / lang).glob("*.toml")})


def template(name, key):
    """Is this text filled in by the frame? Task and hints may hold braces of their own."""
    return name == "frame" or key.startswith("says.")


@pytest.mark.parametrize("name", NAMES)
def test_same_keys_and_placeholders(name):
    en, zh = (leaves(words(name, lang)) for lang in LANGUAGES)
    assert en.keys() == zh.keys()
    for key in en:
        if template(name, key):
            assert placeholders(en[key]) == placeholders(zh[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_neither_is_stale(name):
    """After a change: bring the other file up to date, then `python -m minitx.learn.language SLUG`."""
    for lang, other in (LANGUAGES, LANGUAGES[::-1]):
        assert words(name, lang)["mark"] == digest(name, other), f"{other}/{name}.toml has changed since {lang}'s"


def test_a_change_in_either_file_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(language, "WORDS", tmp_path)
    for lang in LANGUAGES:
        (tmp_path / lang).mkdir()
        (tmp_path / lang / "a.toml").write_text('title = "A"\n[says]\nx = "{n} wrong"\n', "utf-8")
    mark("a")
    before = {lang: digest("a", lang) for lang in LANGUAGES}
    mark("a")
    assert before == {lang: digest("a", lang) for lang in LANGUAGES}  # marking changes nothing
    for lang in LANGUAGES:
        path = tmp_path / lang / "a.toml"
        path.write_text(path.read_text("utf-8").replace('"A"', '"B"'), "utf-8")
        assert digest("a", lang) != before[lang]


def keys_in_code():
    """The first argument of every Finding(...), Stop(...) and say(...)."""
    for file in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and node.args):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in ("Finding", "Stop"):
                for constant in ast.walk(node.args[0]):
                    if isinstance(constant, ast.Constant) and re.fullmatch(r"[a-z][a-z.-]*[a-z]", str(constant.value)):
                        yield constant.value


def test_every_finding_has_a_sentence():
    found = {key if "." in key else f"found.{key}" for key in keys_in_code()} - {"found.edit"}
    assert len(found) > 50
    known = leaves(words("frame", "en"))
    assert {f"found.{key}" for key in FACTS} <= known.keys()
    missing = {key for key in found if key not in known and not any(k.startswith(key) for k in known)}
    assert not missing


@pytest.mark.parametrize("lang", LANGUAGES)
def test_no_sentence_is_left_without_its_values(lang):
    """Every key of the frame's findings says all its placeholders with plain values."""
    from minitx.learn.finding import Finding

    for key, text in leaves(words("frame", lang)).items():
        if key.startswith(("found.", "odd.", "no.")):
            values = dict.fromkeys(placeholders(text), 1.5) | {"near": "", "symbols": "(n,)", "what": ["a", "b"]}
            assert sentence(Finding(key.removeprefix("found."), values), "softmax", lang)


@pytest.mark.parametrize("slug", slugs())
def test_words_of_an_exercise_are_whole(slug):
    for lang in LANGUAGES:
        text = words(slug, lang)
        assert {"title", "task", "why", "hints", "note"} <= text.keys()
        assert all(text[name] for name in ("title", "task", "why", "note"))


def test_the_glossary_names_files_that_exist():
    root = HERE.parent.parent
    for lang in LANGUAGES:
        for row in words("glossary", lang)["rows"]:
            assert (root / row["file"]).is_file(), row
