"""All presets at small size: nothing leaks, and 50 steps on one batch bring the loss down."""
import numpy as np
import pytest

from minitx.audit import audit
from minitx.audit.small import small
from minitx.models import Transformer
from minitx.models.example import example
from minitx.models.presets import PRESETS
from minitx.ops import cross_entropy
from minitx.optim import AdamW


def build(name, **changes):
    return Transformer(small(name, **changes), rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", PRESETS)
def test_nothing_leaks(name):
    report = audit(build(name).astype(np.float64), name=name)
    assert report.passed, report
    assert max(f.size for f in report.findings if f.row != "shift") < 1e-12


@pytest.mark.parametrize("name", ["gpt2", "mixtral", "original"])
def test_in_float32_too(name):
    report = audit(build(name))
    assert report.passed, report
    assert "1e-05" in report.title


@pytest.mark.parametrize("kernel", ["tiled", "linear"])
def test_other_kernels(kernel):
    assert audit(build("gpt2", attention_kernel=kernel).astype(np.float64)).passed


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_random_tokens_teach_nothing(name):
    finding = audit(build(name, layers=1).astype(np.float64), noise=True, seconds=60)["noise"]
    assert finding.leak is (None if name == "vit" else False), finding
    assert abs(finding.size) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_fifty_steps(name):
    model = build(name)
    inputs, targets = example(model.config, 4, 11, np.random.default_rng(1))
    optimizer = AdamW(model, lr=0.01)
    losses = []
    for _ in range(50):
        output = model(*inputs)
        loss = cross_entropy(output.logits, targets)
        losses.append(loss.item())
        for aux in output.aux_losses.values():
            loss = loss + aux * 0.01
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    assert np.mean(losses[-10:]) < np.mean(losses[10:20]) < np.mean(losses[:10])
