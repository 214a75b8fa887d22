"""`minitx check`: everything is covered, everything passes, nothing is passed over in silence, and faults show."""
from __future__ import annotations

import importlib
import inspect
import json
import pkgutil

import numpy as np
import pytest

from minitx import masks, models, nn, ops
from minitx.audit import reasons
from minitx.audit.cases import CASES
from minitx.audit.check import COLUMNS, Row, check, chosen, components, the_torch, versions
from minitx.audit.measure import Measure, absent, careful, distance, worst
from minitx.audit.op_columns import OpColumns
from minitx.audit.parts import BLOCKS, LAYERS, MODELS, PARTS
from minitx.audit.small import small
from minitx.models.presets import PRESETS
from minitx.nn import Module
from minitx.op import Op, registry
from minitx.tensor import Tensor


def parts(which=PARTS):
    return pytest.mark.parametrize("part", [pytest.param(p, id=str(p)) for p in which])


# ---------------------------------------------------------------------- coverage


def modules_of(package):
    """Every Module that a file of the package defines."""
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if inspect.isclass(value) and issubclass(value, Module) and value.__module__ == info.name:
                yield name


def test_every_component_has_a_row():
    """A new op, layer, block or preset without a case fails here."""
    rows = set(components())
    assert set(registry) <= rows
    bases = {"Module", "Residual", "Transformer"}  # (of which the rows are the kinds, and the presets)
    assert {*modules_of(nn), *modules_of(models)} - bases <= rows
    assert set(PRESETS) <= rows
    functions = {n for n in nn.__all__ if inspect.isfunction(getattr(nn, n)) and not isinstance(getattr(nn, n), Op)}
    assert functions - {"real_tokens"} <= rows  # (booleans: pool has it)


def test_every_kind_of_option_of_a_layer_is_tried():
    labels = {str(p) for p in LAYERS}
    assert len(labels) == len(LAYERS)
    assert {p.label for p in LAYERS if p.name == "FeedForward"} == {"relu", "gelu", "gelu_tanh", "silu"}
    assert {p.kind for p in BLOCKS} == {"block"}
    assert {p.label for p in MODELS} == {"decoder", "encoder", "encoder-decoder"}


def test_every_gap_has_a_reason_and_every_reason_a_gap():
    used = set()
    for case in CASES:
        gaps = [(reasons.SMALLEST, case.composition), (reasons.NOT_IN_TORCH, case.torch)]
        for table, witness in gaps:
            keys = [key for key in (str(case), case.op) if key in table]
            assert witness or keys, f"{case}: say in minitx/audit/reasons.py why it has no such witness"
            used |= {(id(table), keys[0])} if keys and not witness else set()
    used |= {(id(reasons.NOT_IN_TORCH), k) for k in ("rotary[yarn]", "dropout")}
    assert used == {(id(t), key) for t in (reasons.SMALLEST, reasons.NOT_IN_TORCH) for key in t}


# ---------------------------------------------------------------------- everything passes


def test_some_rows():
    for row in check(["softmax", "dropout", "linear", "Rotary", "PreNorm", "sinusoidal"]):
        assert row.passed, row
        assert list(row.measures) == list(COLUMNS)
        for measure in row.measures.values():
            assert measure.cases > 0 or measure.why_not  # never silently
            assert (measure.error is None) == (measure.cases == 0)


@parts([*BLOCKS, *MODELS[:3], *(p for p in LAYERS if p.name in ("MultiHeadAttention", "MixtureOfExperts"))])
def test_how_it_is_put_together(part):
    assert part.smaller().passed


@pytest.mark.torch
@parts([p for p in PARTS if not p.not_in_torch])
def test_parts_against_pytorch(part):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    measure = part.pytorch(torch)
    assert measure.passed, measure


@pytest.mark.slow
@pytest.mark.parametrize("name", components())
def test_every_row(name):
    (row,) = check([name])
    assert row.passed, row
    json.dumps(row.to_dict(), allow_nan=False)


def test_each_case_has_a_row_of_its_own():
    rows = [row.name for row in check(["log_softmax", "RMSNorm"], each_case=True)]
    assert rows == ["log_softmax", "log_softmax[axis=0]", "RMSNorm", "RMSNorm[1 + w]"]


def test_without_pytorch_the_column_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert the_torch() is None
    (row,) = check(["exp"])
    assert row.measures["pytorch"].why_not == (reasons.NO_TORCH,)
    assert row.passed


def test_without_numba_the_column_says_so(monkeypatch):
    monkeypatch.setattr("minitx.audit.op_columns.has_numba", lambda: False)
    monkeypatch.setattr("minitx.audit.part.has_numba", lambda: False)
    monkeypatch.setattr(registry["gelu"], "_kernel", None)
    for name in ("gelu", "Linear"):
        (row,) = check([name])
        assert row.measures["kernel"].why_not == (reasons.NO_NUMBA,)


def test_versions():
    assert {"python", "minitx", "numpy", "torch"} <= set(versions())
    assert "torch" not in versions(with_torch=False)


# ---------------------------------------------------------------------- what is wrong shows


def measures_of(name):
    (row,) = check([name])
    assert not row.passed
    return {column for column, m in row.measures.items() if m.passed is False}


def test_a_wrong_backward_pass_shows():
    rule = ops.log_softmax.definition

    def wrong(x, axis=-1):
        y, _ = rule(x, axis)
        return y, lambda dy: dy - np.exp(y) * (dy * np.exp(y)).sum(axis, keepdims=True)

    with ops.log_softmax.using(wrong):
        (row,) = check(["log_softmax"])
    failed = row.measures["differences"]
    assert failed.error > 0.1
    assert "log_softmax: the gradient of x is wrong" in failed.note
    assert row.measures["smaller ops"].passed is False


def test_a_wrong_kernel_shows():
    kernel = ops.layer_norm.kernel
    if kernel is None:
        pytest.skip("numba is not installed")

    def wrong(x, weight=None, bias=None, eps=1e-5):
        return kernel(x, weight, bias, eps * 1.01)

    ops.layer_norm._kernel = wrong
    try:
        assert measures_of("layer_norm") >= {"kernel"}
        (row,) = check(["LayerNorm"])
        assert row.measures["kernel"].passed is False
    finally:
        ops.layer_norm._kernel = kernel


def test_what_raises_fails_and_says_why():
    def broken(x):
        raise RuntimeError("out of order")

    with ops.tanh.using(broken):
        (row,) = check(["tanh"])
    assert not row.passed
    assert row.measures["differences"].note.startswith("RuntimeError: out of order")
    assert row.to_dict()["columns"]["differences"]["error"] == "inf"


# Layers put together wrongly, with right gradients of the wrong function: only the witness that is written out sees it.


def pre_norm_without_the_way_past(self, x, f, adds=False):
    return f(self.norm(x))


def post_norm_before_the_sum(self, x, f, adds=False):
    return x + self.norm(f(x))


def other_key_heads(forward):
    def wrong(self, x, memory=None, **options):
        order = np.arange(self.heads).reshape(self.kv_heads, -1).T.ravel()
        weight = self.query.weight
        d = self.head_dim
        rows = (order[:, None] * d + np.arange(d)).ravel()
        self.query.weight = nn.Parameter(weight.data[rows])
        y = forward(self, x, memory, **options)
        self.query.weight = weight
        return y

    return wrong


def experts_with_equal_weights(monkeypatch):
    def equal(scores, chosen):
        return Tensor(np.full(chosen.shape, 1 / chosen.shape[1])) + 0 * ops.expert_weights(scores, chosen)

    monkeypatch.setattr("minitx.nn.mixture.expert_weights", equal)


WRONG = {
    "PreNorm": lambda m: m.setattr(nn.PreNorm, "forward", pre_norm_without_the_way_past),
    "PostNorm": lambda m: m.setattr(nn.PostNorm, "forward", post_norm_before_the_sum),
    "EncoderBlock": lambda m: m.setattr(nn.PostNorm, "forward", post_norm_before_the_sum),
    "DecoderBlock": lambda m: m.setattr("minitx.nn.blocks.CAUSAL", masks.full()),
    "MultiHeadAttention": lambda m: m.setattr(
        nn.MultiHeadAttention, "forward", other_key_heads(nn.MultiHeadAttention.forward)
    ),
    "MixtureOfExperts": experts_with_equal_weights,
    "pool": lambda m: m.setattr("minitx.nn.pooling.real_tokens", lambda mask, shape: np.ones(shape, bool)),
    "gpt2": lambda m: m.setattr("minitx.nn.blocks.CAUSAL", masks.full()),
    "original": lambda m: m.setattr(nn.PostNorm, "forward", post_norm_before_the_sum),
    "llama": lambda m: m.setattr(nn.Rotary, "forward", lambda self, x, positions, cached=False: x),
    "gemma2": lambda m: m.setattr("minitx.models.parts.tanh", lambda x: x),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_layer_put_together_wrongly_shows(name, monkeypatch):
    case = components()[name][name == "pool"]  # (the first token is real in any case: the mean shows it)
    assert case.smaller().passed
    WRONG[name](monkeypatch)
    found = careful(case.smaller, 1e-10)
    assert not found.passed
    assert 1e-6 < found.error < 1e6  # other numbers, and not an error on the way


# ---------------------------------------------------------------------- names


def test_names_and_kinds():
    assert chosen([]) == list(components())
    assert chosen(["gpt2", "softmax", "gpt2"]) == ["gpt2", "softmax"]
    assert chosen(["models"]) == chosen(["model"]) == list(PRESETS)
    assert set(chosen(["ops"])) == set(registry)
    with pytest.raises(ValueError, match="there is no component 'sofmax'; did you mean 'softmax'"):
        chosen(["sofmax"])


def test_small_presets():
    config = small("llama", layers=3)
    assert (config.layers, config.d_model, config.norm, config.dropout) == (3, 16, "rms", 0.0)
    assert small("vit").patch_dim == 5


# ---------------------------------------------------------------------- measures


def test_measures():
    right, wrong, none = Measure(1e-12, 1e-10), Measure(1e-3, 1e-10, "so"), absent("why")
    assert (right.passed, wrong.passed, none.passed) == (True, False, None)
    assert Measure(float("nan"), 1.0).passed is False
    assert worst([right, none]) == Measure(1e-12, 1e-10, "", ("why",), 1, 2)
    assert worst([right, wrong, right]).note == "so"
    assert worst([none, none]) == Measure(None, 0.0, "", ("why",), 0, 2)
    assert worst([Measure(1e-7, 1e-6), Measure(9e-13, 1e-12)]).error == 9e-13  # the nearest to its limit
    assert not Row("x", "op", {"kernel": wrong}, 0.0).passed


def test_distance():
    a = np.array([1.0, -np.inf, 3.0])
    assert distance(a, a) == 0
    assert distance(a + 0.3, a) == pytest.approx(0.1)
    assert distance(a, np.array([1.0, np.inf, 3.0])) == np.inf
    assert distance(a, a[:2]) == np.inf
    assert distance(np.array([np.nan]), np.array([1.0])) == np.inf
    assert distance(np.array([1e-9]), np.array([0.0])) == pytest.approx(1e-6)


def test_a_kernel_that_leaves_a_case_is_not_counted():
    case = next(c for c in CASES if str(c) == "dropout[p=1]")
    assert OpColumns(case).kernel().why_not or OpColumns(case).kernel().passed
