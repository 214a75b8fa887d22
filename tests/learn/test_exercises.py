"""The exercises themselves: their terms, words that do not give the answer away, and what an import costs."""
import re
import subprocess
import sys

import numpy as np
import pytest
from usual_answers import USUAL

from minitx.learn.attempt import Attempt
from minitx.learn.draw import draw
from minitx.learn.intermediates import first_wrong
from minitx.learn.ladder import calm, climb
from minitx.learn.language import leaves, words
from minitx.learn.shelf import exercise, slugs
from minitx.op import registry

SLUGS = slugs()
OPS = [slug for slug in SLUGS if exercise(slug).part == 1]
LARGEST = [
    "matmul", "cross-entropy", "linear", "embedding", "layer-norm", "heads", "attention", "grouped-query", "rotary",
    "tiled-attention",
]  # fmt: skip
PLAIN = [
    "softmax", "mean", "where", "max", "min", "int", "bool", "log", "exp", "tanh", "sin", "cos", "for", "and", "split",
    "merge", "allowed", "factor", "right", "left", "True", "False", "out", "backward",
]  # fmt: skip


def cases(wanted, seed):
    rng = np.random.default_rng(seed)
    yield wanted.arguments(rng)
    yield from wanted.adversarial(rng).values()


@pytest.mark.parametrize("slug", [slug for slug in SLUGS if exercise(slug).terms])
def test_terms_sum_to_the_gradient_on_odd_inputs_too(slug):
    wanted = exercise(slug)
    for seed in range(3):
        for arguments in cases(wanted, seed):
            made = draw(wanted, seed, arguments)
            for name, parts in wanted.terms(made.dy, *made.arguments.values()).items():
                size = max(np.abs(part).max(initial=0) for part in parts)
                assert np.abs(sum(parts) - made.right[name]).max(initial=0) <= 1e-12 * max(size, 1e-300), name


@pytest.mark.parametrize("slug", OPS)
def test_every_op_has_right_answers_by_other_ways(slug):
    assert len(exercise(slug).unusual) >= (3 if slug in LARGEST else 2)


@pytest.mark.parametrize("slug", USUAL)
def test_the_usual_answer_passes(slug):
    for seed in range(2):
        with calm():
            assert climb(exercise(slug), USUAL[slug], seed=seed).passed


@pytest.mark.parametrize("slug", OPS)
def test_an_op_has_named_mistakes_and_arguments_by_name(slug):
    wanted = exercise(slug)
    assert len(wanted.mutants) >= 5
    for arguments in cases(wanted, 0):
        assert tuple(arguments) == wanted.parameters
        floats = [a for a in arguments.values() if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
        assert all(a.dtype == np.float64 for a in floats)


@pytest.mark.slow
@pytest.mark.parametrize("slug", OPS)
def test_every_hand_made_mistake_is_rejected(slug):
    for key, mutant in exercise(slug).mutants.items():
        with calm():
            assert not climb(exercise(slug), mutant).passed, key


@pytest.mark.parametrize("slug", [slug for slug in SLUGS if exercise(slug).judge and exercise(slug).mutants])
def test_a_judge_says_what_is_wrong(slug):
    """Each wrong answer is met with the sentence that was written for it, whatever the seed."""
    wanted = exercise(slug)
    for key, mutant in wanted.mutants.items():
        for seed in range(1 if wanted.part == 3 else 5):
            with calm():
                found = climb(wanted, mutant, seed=seed).findings
            assert [f.values["text"] for f in found] == [f"@says.{key}"]


@pytest.mark.parametrize("slug", [slug for slug in SLUGS if exercise(slug).part == 3])
@pytest.mark.parametrize("answer", [12345, "nothing", (1, 2, 3, 4), None, [[]]])
def test_any_other_answer_to_a_question_is_wrong(slug, answer):
    assert not climb(exercise(slug), answer).passed


@pytest.mark.parametrize("slug", [slug for slug in SLUGS if exercise(slug).intermediates])
def test_no_variable_of_a_right_answer_is_called_wrong(slug):
    wanted = exercise(slug)
    answers = [*wanted.unusual.values(), *(f for f in (USUAL.get(slug), wanted.solution) if f)]
    for answer in answers:
        with calm():
            assert not first_wrong(Attempt(wanted, answer, answer.__code__.co_filename), draw(wanted, 0))



# ---------------------------------------------------------------------- words


def code(hint):
    """The statements of the third hint."""
    return [part.strip() for part in re.split(r"[;；，]| where |, with | and ", hint) if len(part.strip()) > 12]


@pytest.mark.parametrize("slug", SLUGS)
def test_nothing_gives_the_line_away_before_the_third_hint(slug):
    for lang in ("en", "zh"):
        text = dict(leaves(words(slug, lang)))
        lines = code(text.pop("hints.2"))
        for key, sentence in text.items():
            if key != "note" and not key.startswith("says."):
                assert not [line for line in lines if line in sentence], key


@pytest.mark.parametrize("slug", SLUGS)
def test_code_and_numbers_are_alike_in_both_languages(slug):
    en, zh = (leaves(words(slug, lang)) for lang in ("en", "zh"))

    def kept(text):
        return set(re.findall(r"`[^`]+`|\w+\([^()]*=[^()]*\)|np\.\w+", text))

    for key in en:
        if key.startswith("hints.2"):
            assert kept(en[key]) == kept(zh[key])
        assert set(re.findall(r"`[^`]+`", en[key])) == set(re.findall(r"`[^`]+`", zh[key])), key


@pytest.mark.parametrize("slug", SLUGS)
def test_the_chinese_is_chinese(slug):
    """Every sentence has Chinese in it; names of things and lines of code may not."""
    for key, text in leaves(words(slug, "zh")).items():
        prose = re.sub(r"[\w.]+ ?[=<>]+ ?-?[\w.]+", "", text)
        if key not in ("mark", "title", "hints.2") and len(prose) > 12:
            assert re.search(r"[一-鿿]", text), key


@pytest.mark.parametrize("slug", SLUGS)
def test_equation_and_shapes_are_symbols(slug):
    """They are shown in either language, so there is no sentence in them."""
    wanted = exercise(slug)
    known = " ".join([wanted.signature or "", wanted.function, *wanted.results, *wanted.shapes])
    for text in (wanted.equation, *wanted.shapes.values()):
        for word in re.findall(r"[A-Za-z]{3,}", text):
            assert word in PLAIN or word in known or re.search(rf"[a-zA-Z]_{word}", text)


# ---------------------------------------------------------------------- what it costs to open one


def test_an_exercise_imports_neither_numba_nor_layers():
    script = (
        "import sys, time; import minitx.learn.exercise; start = time.perf_counter()\n"
        "from minitx.learn.shelf import exercise; exercise('attention')\n"
        "print(time.perf_counter() - start, [m for m in sys.modules if m.startswith(('numba', 'torch', 'minitx.nn'))])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    seconds, _, loaded = out.strip().partition(" ")
    assert loaded == "[]"
    assert float(seconds) < 2.0  # 0.02 on a quiet machine


# ---------------------------------------------------------------------- pages and exercises


def test_every_exercise_that_a_page_names_exists():
    named = {}
    for name, op in registry.items():
        if found := re.search(r"^\s*exercise: (\S+)$", op.__doc__ or "", re.M):
            named[name] = found[1]
    assert not {name: slug for name, slug in named.items() if slug not in SLUGS}
    for slug in OPS:
        op = exercise(slug).op
        assert not op or op in named, f"the page of {op} could name the exercise {slug}"
