"""The hunts: each file trains with its fault in it, each leak shows on noise, and the mended file is right."""
import math

import numpy as np
import pytest

from minitx.learn.exercises.hunted import VOCAB, hunted
from minitx.learn.ladder import calm, climb
from minitx.learn.shelf import exercise, slugs

HUNTS = [slug for slug in slugs() if exercise(slug).part == 2]
LEAKS = {"hunt-heads", "leak-mask", "leak-shift"}  # heads that mix positions look into the future, too


def loaded(text):
    space = {"__name__": "hunted"}
    exec(compile(text, "hunted.py", "exec"), space)
    return space


def last(space, draw, steps=200):
    return float(np.mean(space["train"](space[draw], steps)[-20:]))


def test_there_are_six_and_two_leaks():
    assert [slug.partition("-")[0] for slug in HUNTS] == 6 * ["hunt"] + 2 * ["leak"]


@pytest.mark.parametrize("slug", HUNTS)
def test_it_trains_all_the_same(slug):
    assert last(loaded(exercise(slug).starter), "rule") < 0.1


@pytest.mark.parametrize("slug", HUNTS)
def test_noise_shows_the_leaks_and_nothing_else(slug):
    loss = last(loaded(exercise(slug).starter), "noise")
    assert (loss < math.log(VOCAB) - 0.3) == (slug in LEAKS)
    assert slug in LEAKS or loss > math.log(VOCAB) - 0.02


def test_the_mended_file_learns_the_rule_and_not_the_noise():
    space = loaded(hunted())
    assert last(space, "rule") < 0.1
    assert abs(last(space, "noise") - math.log(VOCAB)) < 0.02


@pytest.mark.parametrize("slug", HUNTS)
def test_the_fault_fails_and_the_mended_file_passes(slug):
    wanted = exercise(slug)
    with calm():
        assert climb(wanted, loaded(wanted.mended)[wanted.function]).passed
        assert not climb(wanted, loaded(wanted.starter)[wanted.function]).passed


@pytest.mark.parametrize("slug", HUNTS)
def test_what_a_hunter_gets_is_bare_python(slug):
    text = exercise(slug).starter
    assert not any(word in text for word in ("Array", "Any", "minitx", "noqa", "fmt:", "type:"))
    assert text.replace("import math", "", 1) != hunted().replace("import math", "", 1)


def test_a_fault_has_one_place():
    with pytest.raises(ValueError, match="one place"):
        hunted(("return", "yield"))
