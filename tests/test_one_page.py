"""The poster: its gradients are right, its ten steps are the library's, and it learns."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from minitx.models.config import TransformerConfig
from minitx.models.transformer import Transformer
from minitx.ops import cross_entropy
from minitx.optim import AdamW

FILE = Path(__file__).parent.parent / "demos" / "one_page.py"
SIZES = {"V": 13, "D": 6, "H": 3, "L": 2, "T": 7}
B = 5


@pytest.fixture
def page():
    """The poster as a module of its own, at sizes that tell every axis from every other."""
    spec = importlib.util.spec_from_file_location("one_page", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, size in SIZES.items():
        setattr(module, name, size)
    return module


def randomised(page, rng):
    """Weights in float64; no gain is 1 and no bias 0, or half of the mistakes would not show."""
    return {name: [rng.normal(p, 0.3) for p in pair] for name, pair in page.init(rng).items()}


def random_batch(rng):
    ids, targets = rng.integers(0, SIZES["V"], (2, B, SIZES["T"]))
    targets[rng.random(targets.shape) < 0.3] = -100
    return ids, targets


def test_it_is_one_page():
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 118
    assert [line for line in lines if "import" in line.split()] == ["import numpy as np"]


def test_every_gradient_by_finite_differences(page):
    rng = np.random.default_rng(0)
    w, (ids, targets) = randomised(page, rng), random_batch(rng)
    _, dw = page.loss_and_gradients(w, ids, targets)
    assert dw.keys() == w.keys()
    for name, pair in w.items():
        for p, g in zip(pair, dw[name]):
            assert g.shape == p.shape
            numeric = np.empty_like(p)
            for i in np.ndindex(p.shape):
                at, slope = p[i], 0.0
                for sign in 1, -1:
                    p[i] = at + sign * 2e-6
                    slope += sign * page.loss_and_gradients(w, ids, targets)[0] / 4e-6
                p[i], numeric[i] = at, slope
            np.testing.assert_allclose(g, numeric, rtol=0, atol=1e-8 * max(1, np.abs(numeric).max()), err_msg=str(name))


def parameters_of(model, w):
    """The library's parameter (name, its part) for every array of the poster."""
    D = SIZES["D"]
    e, p = w["embedding"]
    yield from [("embedding.weight", e), ("positions.weight", p)]
    names = {"norm1": "attention_residual.norm", "out": "attention.out", "norm2": "feedforward_residual.norm"}
    names |= {"up": "feedforward.up", "down": "feedforward.down"}
    pairs = [("decoder_norm", w["norm"]), ("head", w["head"])]
    for i in range(SIZES["L"]):
        pairs += [(f"decoder.{i}.{theirs}", w[ours, i]) for ours, theirs in names.items()]
        for j, part in enumerate(("query", "key", "value")):
            pairs.append((f"decoder.{i}.attention.{part}", [a[j * D : (j + 1) * D] for a in w["qkv", i]]))
    for name, (weight, bias) in pairs:
        yield from [(f"{name}.weight", weight), (f"{name}.bias", bias)]


def test_ten_steps_are_those_of_the_library(page):
    """Loss, every gradient and every weight, in float64.

    The gradient of a key's bias is 0 but for rounding, some 1e-17. Over an eps of 1e-8 that makes steps of lr * 1e-9,
    and no two implementations round alike; hence a larger eps.
    """
    rng = np.random.default_rng(1)
    w = randomised(page, rng)
    m, v = ({name: [np.zeros_like(p) for p in pair] for name, pair in w.items()} for _ in "mv")
    config = TransformerConfig(
        architecture="decoder", layers=SIZES["L"], d_model=SIZES["D"], heads=SIZES["H"], vocab_size=SIZES["V"],
        max_length=SIZES["T"], dropout=0.0, tie_embeddings=False, scale_embeddings=False, norm_placement="pre",
        activation="gelu_tanh", position="learned", head_bias=True,
    )  # fmt: skip
    model = Transformer(config, rng=rng).astype(np.float64)
    model.load_state_dict(dict(parameters_of(model, w)))
    optimizer = AdamW(model, lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
    for t in range(1, 11):
        ids, targets = random_batch(rng)
        loss, dw = page.loss_and_gradients(w, ids, targets)
        page.adamw(w, dw, m, v, t, lr=1e-3, eps=1e-6, decay=0.1)
        optimizer.zero_grad()
        ours = cross_entropy(model(ids).logits, targets)
        ours.backward()
        np.testing.assert_allclose(loss, ours.item(), rtol=1e-12)
        for name, g in parameters_of(model, dw):
            gradient = dict(model.named_parameters())[name].grad
            size = max(np.abs(gradient).max(), 1e-4)  # (that of a key's bias is 0: it adds the same to a whole row)
            np.testing.assert_allclose(g, gradient, rtol=0, atol=1e-12 * size, err_msg=name)
        optimizer.step()
        for name, p in parameters_of(model, w):
            value = model.state_dict()[name]
            np.testing.assert_allclose(p, value, rtol=0, atol=1e-12 * np.abs(value).max(), err_msg=f"{name}, step {t}")


@pytest.mark.parametrize("held_out", [True, False])
def test_the_batch_is_what_it_says(page, held_out):
    page.T, page.LONGEST = 22, 10
    ids, targets = page.batch(np.random.default_rng(2), 300, held_out=held_out)
    lengths = set()
    for row, target in zip(ids, targets):
        n = row.tolist().index(page.ASK)
        lengths.add(n)
        assert row[n + 1 : 2 * n + 1].tolist() == row[:n][::-1].tolist()
        assert (row[2 * n + 1 :] == page.END).all()
        assert (row[:n] < 10).all()
        assert (row[:n].sum() % 10 == 0) == held_out
        counted = np.flatnonzero(target != page.IGNORED)
        assert counted.tolist() == list(range(n, 2 * n + 1))
        assert target[counted].tolist() == row[counted + 1].tolist()
    assert lengths == set(range(1, 11))


@pytest.mark.slow
def test_it_learns():
    """Run as a visitor runs it: the last line of figures says that (nearly) every held-out string is answered right."""
    import re
    import subprocess
    import sys

    out = subprocess.run([sys.executable, str(FILE)], capture_output=True, text=True, check=True, timeout=300).stdout
    shares = [float(share) for share in re.findall(r"right: ([\d.]+)%", out)]
    assert len(shares) == 5
    assert shares[-1] >= 99.0
    samples = re.findall(r"(\d+)>(\d+)\.", out)
    assert sum(question == answer[::-1] for question, answer in samples) >= 5
