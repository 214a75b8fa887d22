"""What an evaluation counts, and how it prints; with models whose answers are known."""
import math
from types import SimpleNamespace

import numpy as np
import pytest

from minitx import Tensor
from minitx.data import EOS
from minitx.tasks import Count, Evaluation, get_task


def test_lines_by_hand():
    e = Evaluation(0.5, 1234, [Count("1", 1, 1), Count("2", 8, 10)], {"further_figure": 2.0})
    assert e.exact_match == pytest.approx(9 / 11)
    assert e.score == e.exact_match
    assert e.lines() == [
        "held-out exact match",
        "  length   right      of   share",
        "       1       1       1   1.000",
        "       2       8      10   0.800",
        "     all       9      11   0.818",
        "held-out loss 0.5000 nats per symbol, over 1,234 symbols",
        "further figure 2.0000",
    ]
    assert e.to_dict() == {
        "loss": 0.5, "tokens": 1234, "further_figure": 2.0, "exact_match": 9 / 11,
        "by_length": {"1": [1, 1], "2": [8, 10]},
    }  # fmt: skip


def test_a_single_error_is_not_rounded_away():
    assert "  0.999" in Evaluation(0.0, 1, [Count("3", 9999, 10000)]).lines()[2]


def test_without_exact_match_the_score_is_minus_the_loss():
    e = Evaluation(0.5, 100)
    assert e.exact_match is None
    assert e.score == -0.5
    assert "exact_match" not in e.to_dict()
    assert len(e.lines()) == 1


class Oracle:
    """An encoder-decoder that reads the answer off the task; where `wrong(source)`, its last symbol is another."""

    config = SimpleNamespace(
        architecture="encoder-decoder", head="language-model", max_length=64, rope_scaling=None,
        attention_kernel="linear",  # it has no keys that could be cached
    )  # fmt: skip
    training = False

    def __init__(self, task, wrong=lambda source: False):
        self.vocabulary = len(task.tokenizer)
        self.answers = {}
        for e in task.examples():
            target = np.array(e.targets[0])
            if wrong(e.source):
                target[-1] = 3 + (target[-1] - 2) % (self.vocabulary - 3)
            self.answers[tuple(e.source)] = [*target, EOS]

    def modules(self):
        return [("", self)]

    def eval(self):
        return self

    def encode(self, ids, mask=None):
        memory = np.empty(len(ids), object)
        memory[:] = [tuple(row[: n - 1]) for row, n in zip(ids, mask.lengths)]
        return memory

    def decode(self, target_ids, memory, memory_mask=None, positions=None, last=None):
        T = target_ids.shape[1]
        logits = np.zeros((len(memory), T, self.vocabulary))
        for row, source in zip(logits, memory):
            for t, i in enumerate(self.answers[source][:T]):
                row[t, i] = 50
        if last is not None:
            logits = logits[np.arange(len(memory)), last][:, None]
        return SimpleNamespace(logits=Tensor(logits))

    def __call__(self, ids, target_ids, mask=None, target_mask=None):
        return self.decode(target_ids, self.encode(ids, mask), mask)


@pytest.mark.parametrize("name", ["copy", "sort", "add"])
def test_a_model_that_knows_is_right_everywhere(name):
    task = get_task(name)
    e = task.evaluate(Oracle(task))
    assert e.exact_match == 1
    assert e.loss < 1e-12
    assert sum(c.total for c in e.by_length) == 1000
    assert e.tokens == sum(len(x.targets[0]) + 1 for x in task.examples())
    for source, truth, said in task.samples(Oracle(task), 5):
        assert truth == said
        assert source


def test_one_wrong_symbol_makes_a_sequence_wrong():
    task = get_task("copy")
    model = Oracle(task, wrong=lambda source: len(source) == 7)
    e = task.evaluate(model)
    assert {c.label: c.right / c.total for c in e.by_length} == {str(n): float(n != 7) for n in range(1, 13)}
    assert e.exact_match == pytest.approx(1 - 99 / 1000)
    wrong = [(truth, said) for _, truth, said in task.samples(model, 1000) if truth != said]
    assert len(wrong) == 99
    assert all(truth.split()[:-1] == said.split()[:-1] for truth, said in wrong)


def test_the_loss_is_per_counted_symbol():
    """A model that gives every id the same probability: log V, whatever the padding."""
    task = get_task("reverse")
    model = Oracle(task)
    model.answers = {source: [] for source in model.answers}
    e = task.evaluate(model)
    assert e.loss == pytest.approx(math.log(13))
    assert e.exact_match == 0


def test_any_of_several_targets_is_right(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_text("".join(f"w{i}\ta{i}\nw{i}\tb{i}\n" for i in range(200)), encoding="utf-8")
    task = get_task("pairs", file=path)
    model = Oracle(task)
    assert task.evaluate(model).exact_match == 1
    for e in task.examples():
        model.answers[tuple(e.source)] = [*e.targets[1], EOS]
    assert task.evaluate(model).exact_match == 1
    for e in task.examples():
        model.answers[tuple(e.source)] = [*e.targets[1], e.targets[1][-1], EOS]  # one too many
    assert task.evaluate(model).exact_match == 0


def test_text_is_scored_by_its_loss_in_nats_and_bits(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    task = get_task("text", file=path, context=16)

    class Uniform(Oracle):
        config = SimpleNamespace(
            **vars(Oracle.config) | {"architecture": "decoder", "max_length": 16, "vocab_size": len(task.tokenizer)}
        )

        def __init__(self):
            pass

        def decode(self, ids, memory, *, last, **options):
            return SimpleNamespace(logits=Tensor(np.zeros((len(ids), 1, len(task.tokenizer)))))

        def __call__(self, ids, mask=None):
            return SimpleNamespace(logits=Tensor(np.zeros((*ids.shape, len(task.tokenizer)))))

    e = task.evaluate(Uniform())
    V = len(task.tokenizer)
    assert e.loss == pytest.approx(math.log(V))
    assert e.metrics == {"bits_per_character": pytest.approx(math.log2(V)), "held_out_8_grams_seen_in_training": 1.0}
    assert e.exact_match is None
    assert e.score == -e.loss
    samples = task.samples(Uniform(), 3)
    assert len(samples) == 3
    assert all(prompt + truth in task.text[task.cut :] for prompt, truth, _ in samples)
    assert samples == task.samples(Uniform(), 3)
