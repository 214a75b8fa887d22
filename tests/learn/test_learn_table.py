"""What `python -m minitx.learn.report` prints of every exercise: a sample here, everything in the slow tests."""
import inspect

import numpy as np
import pytest

from minitx.learn.draw import draw
from minitx.learn.intermediates import watching
from minitx.learn.ladder import calm
from minitx.learn.language import words
from minitx.learn.report import as_function, row, table
from minitx.learn.shelf import every, exercise, slugs

SLUGS = slugs()


@pytest.mark.parametrize("slug", SLUGS)
def test_a_sample(slug):
    """The stub fails, the solution and the unusual ones pass, and every seventh wrong one is rejected and named."""
    with calm():
        found = row(exercise(slug), seeds=2, every_nth=7)
    assert found.stub
    assert found.passes == (2 if exercise(slug).solution or exercise(slug).op or exercise(slug).part == 3 else 0)
    assert found.unusual == found.unusual_all
    assert found.rejected == found.mutants, found.unnamed
    assert found.named == found.mutants, found.unnamed


@pytest.mark.slow
def test_the_whole_table():
    with calm():
        total = table(row(wanted) for wanted in every())
    assert total.stub
    assert total.rejected == total.mutants
    assert total.named >= 0.9 * total.mutants
    assert total.reasoned >= 0.5 * total.mutants
    assert total.wrong == 0
    assert total.naive > 0.05 * total.mutants  # what the usual check lets through


@pytest.mark.parametrize("slug", SLUGS)
def test_terms_sum_to_the_gradient(slug):
    wanted = exercise(slug)
    if wanted.terms is None:
        return
    for seed in range(3):
        made = draw(wanted, seed)
        terms = wanted.terms(made.dy, *made.arguments.values())
        assert set(terms) <= set(wanted.gradients)
        for name, parts in terms.items():
            assert made.agrees(name, np.sum(np.broadcast_arrays(*parts), axis=0), 1e-10), name
            for lang in ("en", "zh"):
                assert len(words(slug, lang)["terms"][name]) == len(parts)


@pytest.mark.parametrize("slug", SLUGS)
def test_words_and_data_fit(slug):
    """Every case, mutant and intermediate has its sentence; what is needed comes before."""
    wanted = exercise(slug)
    assert all(SLUGS.index(other) < SLUGS.index(slug) for other in wanted.needs)
    assert wanted.minutes in (10, 30, 90)
    rng = np.random.default_rng(0)
    cases = [*wanted.forward_cases(rng), *wanted.adversarial(rng)]
    for lang in ("en", "zh"):
        text = words(slug, lang)
        assert set(cases) <= set(text.get("cases", {}))
        if wanted.answer is None:
            assert set(wanted.mutants) <= {*text.get("mutants", {}), *text.get("says", {})}
        if wanted.intermediates is not None:
            made = draw(wanted, 0)
            assert set(wanted.intermediates(made.dy, *made.arguments.values())) <= set(text["names"])


def test_there_are_enough_unusual_answers():
    """Two for every exercise on an op, three for ten of them."""
    counts = {e.slug: len(e.unusual) for e in every() if e.part == 1}
    assert min(counts.values()) >= 2, counts
    assert sum(n >= 3 for n in counts.values()) >= 10, counts


@pytest.mark.parametrize("slug", SLUGS)
def test_the_solution_holds_the_intermediates(slug):
    """Where the solution's source has a variable of such a name and shape, it holds these numbers at some time."""
    wanted = exercise(slug)
    if wanted.intermediates is None or wanted.solution is None:
        return
    from minitx.learn.attempt import Attempt

    made = draw(wanted, 0)
    right = wanted.intermediates(made.dy, *made.arguments.values())
    attempt = Attempt(wanted, as_function(wanted), inspect.getsourcefile(wanted.solution))
    seen = {}
    with calm(), watching(attempt, right, seen):
        made.given(attempt)
    for name, value in right.items():
        held = [a for a in seen.get(name, []) if a.shape == value.shape]
        assert not held or any(np.allclose(a, value, rtol=1e-9, atol=1e-12) for a in held), name


@pytest.mark.parametrize("slug", SLUGS)
def test_sizes_are_told_apart(slug):
    """No array with a gradient has two axes of one size, and none is so large that differences take long."""
    wanted = exercise(slug)
    if wanted.part != 1 or not wanted.backward:
        return
    made = draw(wanted, 0)
    for name in wanted.gradients:
        shape = np.shape(made.arguments[name])
        assert len(set(shape)) == len(shape), (name, shape)
        assert np.prod(shape) <= 1000
