"""A model with each leak planted is caught by the right row, at the right position; honest ones pass."""
from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import minitx.generation.session as session
from minitx import masks, nn
from minitx.audit import audit
from minitx.audit.small import small
from minitx.data import Batch
from minitx.data.batch import IGNORED
from minitx.data.objectives import next_token, sequence_to_sequence
from minitx.models import Transformer
from minitx.ops import cross_entropy, log_softmax

V = 23


def build(name="gpt2", **changes):
    return Transformer(small(name, **changes), rng=np.random.default_rng(0)).astype(np.float64)


def leaks(report):
    return {row: report[row].at for row in report.leaks}


# ---------------------------------------------------------------------- honest


def test_an_honest_model_passes_every_row():
    report = audit(build())
    assert report.passed
    assert [f.row for f in report.findings if f.leak is None] == ["cross-attention"]
    assert max(f.size for f in report.findings) < 1e-12
    assert "no leak" in str(report)


def test_every_row_is_asked_of_an_encoder_decoder_but_packing():
    assert [f.row for f in audit(build("original")).findings if f.leak is None] == ["documents"]


def test_the_report_as_data():
    figures = audit(build(), name="mine").to_dict()
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    assert figures["title"].startswith("mine: decoder, vocabulary 23, length 11")
    assert figures["findings"][0] == {
        "row": "future", "question": "a changed future token does not move past logits", "leak": False, "size": 0.0,
        "at": None, "by": None, "said": "",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["gpt2", "original"])
def test_the_model_stays_as_it_is(name):
    model = build(name, dropout=0.5)
    before, states = model.state_dict(), [m.training for _, m in model.modules()]
    assert audit(model).passed  # without dropout
    assert [m.training for _, m in model.modules()] == states
    assert all((value == before[name]).all() for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


# ---------------------------------------------------------------------- the future


def sees(later):
    """causal(), but position t sees `later(t)` tokens more."""

    class Wrong(masks.causal):
        __slots__ = ()

        def bounds(self, position, T_k):
            return 0, position + 1 + later(position)

    return Wrong()


@pytest.mark.parametrize("name", ["gpt2", "original", "llama"])
@pytest.mark.parametrize("first", [0, 5])
def test_a_causal_mask_off_by_one(monkeypatch, name, first):
    monkeypatch.setattr("minitx.nn.blocks.CAUSAL", sees(lambda t: (t >= first) * 1))
    report = audit(build(name))
    assert leaks(report)["future"] == (0, first)
    assert report["future"].by == first + 1
    assert f"position {first} moves by" in str(report)
    assert 1e-6 < report["future"].size < 10
    assert set(report.leaks) <= {"future", "incremental", "documents"}  # (the cache has the right mask)


def test_no_causal_mask_at_all():
    encoder = build("bert")
    report = audit(lambda ids: encoder(ids), vocab_size=V)
    assert leaks(report) == {"future": (0, 0)}


def test_the_whole_answer_behind_the_last_token():
    def f(ids):
        logits = build()(ids).logits.numpy()
        logits[:, 0, 0] += 1e-6 * ids[:, -1]
        return logits

    finding = audit(f, vocab_size=V)["future"]
    assert (finding.at, finding.by) == ((0, 0), 10)


# ---------------------------------------------------------------------- padding


class Wrapped(nn.Module):
    """A model whose masks and positions go through a function first."""

    def __init__(self, model, change):
        self.model, self.change, self.config = model, change, model.config

    def forward(self, ids, *, mask=None, positions=None):
        mask, positions = self.change(mask, positions)
        return self.model(ids, mask=mask, positions=positions)


def of_padding(change):
    return lambda mask, positions: (change(mask) if isinstance(mask, masks.padding) else mask, positions)


@pytest.mark.parametrize("name", ["gpt2", "bert", "mistral"])
def test_left_padding_that_is_seen(name):
    model = Wrapped(build(name), of_padding(lambda m: m if m.side == "right" else None))
    finding = audit(model)["padding"]
    assert finding.at == (1, 4)  # the first real token of a row of 7 among 11 places
    assert "padded on the left" in finding.said


def test_padding_that_is_seen_by_an_encoder():
    report = audit(Wrapped(build("bert"), of_padding(lambda m: None)))
    assert leaks(report) == {"padding": (1, 0)}


def test_padding_off_by_one():
    def one_more(mask):
        return masks.padding(np.minimum(mask.lengths + 1, 11), mask.side)

    assert leaks(audit(Wrapped(build("bert"), of_padding(one_more)))) == {"padding": (1, 0)}


def test_padding_that_is_seen_by_the_encoder_of_two(monkeypatch):
    forward = nn.EncoderBlock.forward
    monkeypatch.setattr(nn.EncoderBlock, "forward", lambda self, x, mask=None, **o: forward(self, x, **o))
    report = audit(build("original"))
    assert leaks(report)["padding"] == (1, 0)
    assert set(report.leaks) == {"padding"}


def test_pooling_that_reads_padding():
    model = build("vit", pooling="mean")
    report = audit(model)
    assert report.passed
    model.head.forward = lambda hidden, mask=None: type(model.head).forward(model.head, hidden)
    assert leaks(audit(model)) == {"padding": (1, 0)}


# ---------------------------------------------------------------------- cross-attention


def test_source_padding_read_by_cross_attention(monkeypatch):
    forward = nn.DecoderBlock.forward

    def without(self, x, memory=None, memory_mask=None, **options):
        return forward(self, x, memory, **options)

    monkeypatch.setattr(nn.DecoderBlock, "forward", without)
    report = audit(build("t5"))
    assert leaks(report)["cross-attention"] == (1, 0)
    assert set(report.leaks) <= {"cross-attention", "incremental"}


# ---------------------------------------------------------------------- loss and shift


def over_all_places(logits, targets):
    return cross_entropy(logits, targets, reduction="sum") / targets.size


def padding_counts(logits, targets):
    return cross_entropy(logits, np.where(targets == IGNORED, 0, targets))


def last_forgotten(logits, targets):
    return cross_entropy(logits[:2], targets[:2])


def regularised(logits, targets):
    return cross_entropy(logits, targets) + (log_softmax(logits) ** 2).mean() * 1e-3


@pytest.mark.parametrize(
    ("loss", "at", "words"),
    [
        (over_all_places, None, "is the mean over the 17 valid targets"),
        (padding_counts, (2, 1), "position 1 is no valid target, and the loss has a gradient there"),
        (last_forgotten, None, "is the mean over the 17 valid targets"),
        (regularised, (2, 1), "is no valid target"),
    ],
)
def test_a_loss_that_counts_wrongly(loss, at, words):
    report = audit(build(), loss=loss)
    assert leaks(report) == {"loss": at}
    assert words in str(report)


def test_an_objective_that_gives_padding_targets():
    def objective(ids, lengths):
        right = next_token(ids, lengths)
        return Batch(right.ids, np.where(right.targets == IGNORED, 0, right.targets), mask=right.mask)

    assert leaks(audit(build(), objective=objective)) == {"loss": (2, 1)}


def unshifted(ids, lengths):
    right = next_token(ids, lengths)
    return Batch(right.ids, np.where(right.targets == IGNORED, IGNORED, right.ids), mask=right.mask)


def shifted_backwards(ids, lengths):
    right = next_token(ids, lengths)
    return Batch(right.targets.clip(0), np.where(right.targets == IGNORED, IGNORED, right.ids), mask=right.mask)


@pytest.mark.parametrize(("objective", "at", "by"), [(unshifted, (0, 0), 0), (shifted_backwards, (0, 1), 1)])
def test_targets_that_can_be_read(objective, at, by):
    report = audit(build(), objective=objective)
    assert leaks(report) == {"shift": at}
    assert report["shift"].by == by
    assert f"position {at[1]} reads its own target, token {by} of the text" in str(report)


def test_a_decoder_that_reads_its_targets():
    def objective(sources, targets):
        right = sequence_to_sequence(sources, targets)
        return Batch(right.ids, right.targets, right.targets.clip(0), mask=right.mask)

    report = audit(build("original"), objective=objective)
    assert leaks(report) == {"shift": (0, 0)}


def test_a_masked_model_whose_tokens_are_not_masked():
    def objective(ids, lengths):
        chosen = np.random.default_rng(0).random(ids.shape) < 0.3
        real = np.arange(ids.shape[1]) < lengths[:, None]
        return Batch(ids, np.where(chosen & real, ids, IGNORED), mask=masks.padding(lengths))

    report = audit(build("bert"), objective=objective)
    assert report.leaks == ["shift"]
    assert report["shift"].size == 1


# ---------------------------------------------------------------------- other samples


def normalised_over_the_batch(model):
    def f(ids, mask=None, positions=None):
        logits = model(ids, mask=mask, positions=positions).logits.numpy()
        return logits - logits.mean(0, keepdims=True)

    return f


def adds_the_row_before(model):
    def f(ids, mask=None, positions=None):
        logits = model(ids, mask=mask, positions=positions).logits.numpy()
        logits[1:, 3:] += 1e-3 * logits[:-1, 3:]
        return logits

    return f


@pytest.mark.parametrize(("wrong", "at"), [(normalised_over_the_batch, (0, 0)), (adds_the_row_before, (1, 3))])
def test_rows_of_a_batch_that_touch_each_other(wrong, at):
    report = audit(wrong(build()), vocab_size=V)
    assert leaks(report) == {"batch": at}


def test_a_result_that_depends_on_how_much_padding_there_is():
    def f(ids, mask=None):
        return model(ids, mask=mask).logits.numpy() * ids.shape[1]

    model = build()
    report = audit(f, vocab_size=V)
    assert leaks(report) == {"batch": (1, 0)}
    assert "when it is alone" in report["batch"].said


def test_documents_that_see_each_other():
    report = audit(Wrapped(build(), lambda mask, p: (None if isinstance(mask, masks.documents) else mask, p)))
    assert leaks(report) == {"documents": (0, 3)}
    assert "position 3 moves by" in str(report)


def test_documents_whose_positions_do_not_begin_again():
    report = audit(Wrapped(build(), lambda mask, positions: (mask, None)))
    assert leaks(report) == {"documents": (0, 3)}
    assert "when its document is alone" in report["documents"].said
    rotary = audit(Wrapped(build("llama"), lambda mask, positions: (mask, None)))
    assert rotary.passed  # it turns by distances, and these are the same


# ---------------------------------------------------------------------- with a cache


@pytest.mark.parametrize("name", ["gpt2", "original"])
def test_a_cache_that_forgets(monkeypatch, name):
    right = session.incremental

    def forgets(model, ids, **options):
        logits = right(model, ids, **options)
        logits[1, 6:] = right(model, ids[:, 1:], **options)[1, 5:]
        return logits

    monkeypatch.setattr(session, "incremental", forgets)
    assert leaks(audit(build(name))) == {"incremental": (1, 6)}


def test_without_a_cache_the_row_says_so(monkeypatch):
    monkeypatch.delattr(session, "incremental")
    finding = audit(build())["incremental"]
    assert finding.leak is None
    assert finding.said == "later: there is no cache yet"
    refused = audit(build(attention_kernel="linear"))
    assert refused.passed
    assert "running sum" in refused["documents"].said


# ---------------------------------------------------------------------- noise


SOME = ["gpt2", pytest.param("original", marks=pytest.mark.slow)]


def test_random_tokens_cannot_be_learned():  # (other presets: test_presets_audit.py)
    finding = audit(build(layers=1), noise=True)["noise"]
    assert finding.leak is False
    assert abs(finding.size) < 0.02
    assert "to repeat the token before it learns in that time" in finding.said


@pytest.mark.parametrize("name", SOME)
def test_a_mask_off_by_one_goes_far_below(monkeypatch, name):
    monkeypatch.setattr("minitx.nn.blocks.CAUSAL", sees(lambda t: 1))
    report = audit(build(name, layers=1), noise=True)
    assert {"future", "noise"} <= set(report.leaks)
    assert report["noise"].size > 0.5  # nats below
    assert "would be a leak" in str(report)


@pytest.mark.slow
def test_unshifted_targets_go_far_below():
    report = audit(build(layers=1), objective=unshifted, noise=True)
    assert report.leaks == ["shift", "noise"]
    assert report["noise"].size > 1


def test_too_short_to_tell():
    finding = audit(build(), noise=True, seconds=1e-6)["noise"]
    assert finding.leak is None
    assert finding.said.startswith("2 steps are too few to tell")


def test_the_first_step_is_not_counted_among_the_seconds(monkeypatch):
    """Kernels may be compiled in it: here it takes 100 seconds, and each of the others a quarter of one."""
    steps = []
    clock = SimpleNamespace(perf_counter=lambda: 100 * bool(steps) + len(steps) / 4)
    monkeypatch.setattr("minitx.audit.noise.time", clock)
    monkeypatch.setattr("minitx.audit.noise.clip_grad_norm", lambda *args: steps.append(1))
    finding = audit(build(layers=1), noise=True, seconds=4)["noise"]
    assert finding.said.startswith("9 steps are too few to tell")


# ---------------------------------------------------------------------- any callable


def test_a_function_of_ids():
    table = np.random.default_rng(0).standard_normal((V, V))
    report = audit(lambda ids: table[ids], vocab_size=V)
    assert report.passed
    said = {f.row: f.said for f in report.findings if f.leak is None}
    assert said["padding"] == "it takes no mask=, so every token is real to it"
    assert said["documents"] == "it takes no mask= and no positions="
    assert said["incremental"] == "a function has no cache that could be tried"
    assert audit(lambda ids: table[ids], vocab_size=V, noise=True)["noise"].leak is None


def test_an_encoder_decoder_as_a_function():
    model = build("original")

    def f(ids, target_ids, mask=None):
        return model(ids, target_ids).logits  # no mask at all

    report = audit(f, family="encoder-decoder", vocab_size=V)
    assert leaks(report) == {"cross-attention": (1, 0)}


@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
def test_a_decoder_that_has_one_answer_a_row(pooling):
    report = audit(build("gpt2", head="classification", classes=3, pooling=pooling))
    assert report.passed
    for row in ("future", "documents", "incremental"):
        assert report[row].said == "it has one answer a row"
    assert report["padding"].leak is report["batch"].leak is False


TABLE = np.random.default_rng(0).standard_normal((V, V))


def at_random():
    chance = np.random.default_rng(0)
    return lambda ids: TABLE[ids] * (chance.random((*ids.shape, V)) > 0.1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: audit(lambda ids: ids), ValueError, "has to be told vocab_size="),
        (lambda: audit(lambda ids: ids, vocab_size=V), TypeError, "logits are floats"),
        (lambda: audit(lambda ids: ids, vocab_size=V, family="rnn"), ValueError, "family is one of decoder"),
        (lambda: audit(build(), length=3), ValueError, "at least 4 places"),
        (lambda: audit(lambda ids: TABLE[ids][:, 1:], vocab_size=V), ValueError, r"11 places each, are .* not \(1, 10"),
        (lambda: audit(at_random(), vocab_size=V), ValueError, "same tokens give other logits .* turn off dropout"),
        (lambda: audit(lambda ids: TABLE[ids] * np.nan, vocab_size=V), ValueError, "logits of ordinary tokens are NaN"),
    ],
)
def test_what_cannot_be_audited(call, error, words):
    with pytest.raises(error, match=words):
        call()
