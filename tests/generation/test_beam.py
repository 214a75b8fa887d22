"""Beam search: with room for everything it is exhaustive search, with room for one greedy, and it ends in time."""
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx.generation import generate
from minitx.generation.beam import Beam, Search, best_of, search
from minitx.generation.filters import log_softmax
from minitx.generation.stopping import eos_ids
from minitx.generation.timings import Timings
from minitx.models import Transformer, TransformerConfig

EOS = 2
PENALTIES = [-1.5, -0.7, 0.0, 0.6, 1.0, 2.5]


class Table:
    """A session over a language model that is a table: the logits after each text are random numbers of their own."""

    nbytes = allocated = 0

    def __init__(self, seed, V, scale=1.5, rows=1, favour=None):
        self.seed, self.V, self.scale, self.favour = seed, V, scale, favour
        self.texts = [(row,) for row in range(rows)]
        self.steps = 0

    def after(self, text):
        rng = np.random.default_rng((self.seed, *text))
        z = rng.normal(0, self.scale, self.V)
        if self.favour is not None:  # make the EOS likely or unlikely
            z[EOS] += self.favour
        return z

    def logits(self):
        return np.stack([self.after(text) for text in self.texts])

    def step(self, ids):
        self.steps += 1
        self.texts = [(*text, int(i)) for text, i in zip(self.texts, ids, strict=True)]
        return self.logits()

    def reorder(self, rows):
        self.texts = [self.texts[i] for i in rows]


def beam(table, width, penalty, most, best=1, eos=EOS):
    searches = [Search(Beam(width, penalty), np.array([i]), most, "length", best) for i in range(len(table.texts))]
    search(table, table.logits(), searches, eos_ids(eos), Timings())
    return searches


def everything(table, text, penalty, most, eos=EOS):
    """All answers with their scores, best first: ended by EOS, or with `most` ids."""
    out = []

    def extend(said, log_p):
        n = len(said) + 1
        for i, step in enumerate(log_softmax(table.after((*text, *said)))):
            score = (log_p + step) / n**penalty
            if i == eos:
                out.append((score, said))
            elif n == most:
                out.append((score, (*said, i)))
            else:
                extend((*said, i), log_p + step)

    extend((), 0.0)
    return sorted(out, reverse=True)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("favour", [-2.0, 0.0, 2.0])
def test_equals_exhaustive_search(penalty, favour):
    for seed, (V, most) in enumerate([(3, 5), (4, 4), (5, 3), (7, 2), (3, 1)]):
        table = Table(seed, V, favour=favour)
        expected = everything(table, (0,), penalty, most)
        (found,) = beam(table, V**most, penalty, most, best=4)
        for h, (score, ids) in zip(found.done, expected[:4]):
            assert h.ids == ids
            np.testing.assert_allclose(h.score, score, rtol=1e-12)
        assert len(found.done) == min(4, len(expected))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_no_better_hypothesis_of_the_beam_is_missed_by_ending_early(penalty, monkeypatch):
    """The same search that never ends before its last step finds nothing better."""
    saved = 0
    for seed in range(12):
        early = Table(seed, 6, rows=3, favour=1.5)
        a = beam(early, 3, penalty, 8)
        with monkeypatch.context() as m:
            m.setattr(Search, "_settled", lambda self, live: False)
            late = Table(seed, 6, rows=3, favour=1.5)
            b = beam(late, 3, penalty, 8)
        assert [s.done for s in a] == [s.done for s in b]
        saved += late.steps - early.steps
    assert saved > 0 or penalty > 1  # where it can, it does end early


def test_ending_at_the_first_finished_hypothesis_would_be_wrong():
    """With a positive penalty the answer that is finished first is overtaken by a longer one."""
    table = Table(0, 3)
    p = {(): [0.01, 0.45, 0.54], (1,): [0.01, 0.98, 0.01], (1, 1): [0.01, 0.01, 0.98]}
    table.after = lambda text: np.log(p[text[1:]]) if text[1:] in p else np.log([0.4, 0.3, 0.3])
    assert beam(table, 3, 0.0, 5)[0].done[0].ids == ()
    table.texts = [(0,)]
    assert beam(table, 3, 1.0, 5)[0].done[0].ids == (1, 1)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_beam_of_one_is_greedy(penalty):
    for seed in range(20):
        table = Table(seed, 7, rows=2, favour=0.5)
        for i, found in enumerate(beam(table, 1, penalty, 6)):
            said = []
            while len(said) < 6 and (new := int(table.after((i, *said)).argmax())) != EOS:
                said.append(new)
            (h,) = found.done
            assert list(h.ids) == said
            assert h.finish == ("length" if len(said) == 6 else "eos")


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(PENALTIES), st.integers(1, 3))
def test_rows_beside_each_other_are_as_alone(seed, width, penalty, best):
    best = min(best, width)
    together = beam(Table(seed, 5, rows=3), width, penalty, 4, best)
    for i, found in enumerate(together):
        alone = Table(seed, 5)
        alone.texts = [(i,)]
        assert beam(alone, width, penalty, 4, best)[0].done == found.done


def test_log_probabilities_are_the_models():
    table = Table(3, 5)
    (found,) = beam(table, 4, 0.5, 6)
    h = found.done[0]
    said = [*h.ids, EOS] if h.finish == "eos" else h.ids
    for n, i in enumerate(said):
        assert h.log_probs[n] == log_softmax(table.after((0, *said[:n])))[i]
    np.testing.assert_allclose(h.log_p, sum(h.log_probs))
    np.testing.assert_allclose(h.score, h.log_p / len(said) ** 0.5)


def test_several_eos():
    (found,) = beam(Table(5, 5), 625, 0.0, 4, best=3, eos=[2, 3])
    assert all(2 not in h.ids and 3 not in h.ids for h in found.done)


def test_best_of_breaks_ties_by_the_ids():
    total = np.array([[0.0, -1.0, -1.0], [-1.0, -np.inf, -2.0]])
    assert best_of(total, total, 3) == [(0, 0), (0, 1), (0, 2)]
    assert best_of(total, total, 100) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2)]
    own = np.array([[0.0, -3.0, -1.0], [-0.5, -np.inf, -2.0]])
    assert best_of(total, own, 2) == [(0, 0), (1, 0)]


# ---------------------------------------------------------------------- with a model


def model():
    config = TransformerConfig.gpt2(
        layers=1, d_model=8, heads=2, vocab_size=5, max_length=9, tie_embeddings=False, dropout=0.0
    )
    model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
    rng = np.random.default_rng(11)
    for p in model.parameters():
        if p.ndim == 2:
            p.data = rng.normal(0, 0.9, p.shape)
    return model


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("cache", [True, False])
def test_a_model_searched_exhaustively(penalty, cache):
    m = model()
    prompts = [[3, 4, 0], [1]]
    found = generate(m, prompts, max_new=3, beam=125, length_penalty=penalty, cache=cache)
    for prompt, answer in zip(prompts, found):
        scores = {}
        for ids in itertools.product(range(5), repeat=3):
            ids = ids[: ids.index(EOS) + 1] if EOS in ids else ids
            logits = m(np.array([[*prompt, *ids]])).logits.numpy()[0]
            log_p = log_softmax(logits)[np.arange(len(prompt) - 1, len(prompt) + len(ids) - 1), ids].sum()
            scores[ids] = log_p / len(ids) ** penalty
        best = max(scores, key=scores.get)
        assert tuple(i for i in best if i != EOS) == tuple(answer.ids)
        np.testing.assert_allclose(answer.score, scores[best], rtol=1e-9)


def test_a_beam_with_constraints_and_n_best():
    m = model()
    free = generate(m, [[3, 4]], max_new=4, beam=6, copies=3)
    assert [a.score for a in free] == sorted((a.score for a in free), reverse=True)
    held = generate(m, [[3, 4]], max_new=4, beam=6, banned=[EOS, 1])[0]
    assert len(held.ids) == 4
    assert held.finish == "length"
    assert 1 not in held.ids
    all_banned = generate(m, [[3, 4], [1]], max_new=4, beam=2, banned=range(5))
    assert all("no id is left" in str(a.error) for a in all_banned)


def test_a_dead_end_is_left():
    """A hypothesis after which everything is forbidden falls out of the beam; the others go on."""

    def nothing_after_3(logits, ids):
        return np.full_like(logits, -np.inf) if ids[-1] == 3 else logits

    (answer,) = generate(model(), [[1]], max_new=3, beam=125, filters=[nothing_after_3])
    assert 3 not in answer.ids[:-1]
    assert answer.error is None


def test_fewer_answers_than_asked_for():
    first, second = generate(model(), [[1]], max_new=3, beam=2, copies=2, banned=[0, 1, 2, 4])
    assert list(first.ids) == [3, 3, 3]
    assert "no more than 1 answers" in str(second.error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam is a whole number, at least 1, not 0"),
        ({"beam": 2.5}, "beam is a whole number"),
        ({"beam": 2, "length_penalty": np.inf}, "length_penalty is a number between -50 and 50"),
        ({"beam": 2, "length_penalty": -300}, "length_penalty is a number between -50 and 50"),
        ({"length_penalty": 1.0}, "length_penalty is of beam search"),
        ({"beam": 2, "temperature": 1.0}, "draws nothing"),
        ({"beam": 2, "top_k": 3}, "draws nothing"),
        ({"beam": 2, "copies": 3}, "a beam of 2 has no 3 best answers"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        generate(model(), [[3]], max_new=2, **options)
