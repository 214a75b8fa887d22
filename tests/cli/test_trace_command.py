"""minitx trace: the flow of data through a small model, as a table and as numbers."""
import re

import numpy as np
import pytest

from minitx.cli.trace import presets
from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy


def test_presets_are_found():
    assert {"original", "gpt2"} <= set(presets())
    assert "from_dict" not in presets()


def test_the_numbers_are_the_models_numbers(run):
    """B 1, T 3, d 4: what is printed of the loss and of the embedding is what the same model computes."""
    status, out, err = run("trace", "gpt2")
    assert (status, err) == (0, "")
    assert "B 1, T 3, d_model 4" in out
    ids = np.array(eval(re.search(r"^ids (.*)$", out, re.M)[1]))
    targets = np.array(eval(re.search(r"^targets (.*)$", out, re.M)[1]))
    assert ids.shape == targets.shape == (1, 3)
    config = TransformerConfig.gpt2(layers=1, d_model=4, heads=2, vocab_size=7, max_length=3, init_std=0.3)
    model = Transformer(config, rng=np.random.default_rng(0)).eval()
    loss = cross_entropy(model(ids).logits, targets)
    assert float(out.split("cross_entropy")[-1].splitlines()[1].split()[0]) == pytest.approx(loss.item(), abs=6e-5)
    first = " ".join(f"{x:.4f}" for x in model.embedding.weight.data[0])
    assert first.split()[0] in out
    for op in ("embedding", "layer_norm", "linear", "attention", "gelu", "cross_entropy"):
        assert f"  {op} " in out


@pytest.mark.parametrize("preset", presets())
def test_every_preset(run, preset):
    status, out, _ = run("trace", preset, "--batch", 2, "--length", 5, "--set", "d_model=8", "layers=2")
    assert status == 0
    assert "  linear " in out
    assert "[[" not in out.split("targets", 1)[1].split("\n", 1)[1]  # too large for numbers: a table


def test_a_trained_model(run, language_model):
    status, out, _ = run("trace", language_model)
    assert status == 0
    assert "vocab" not in out
    assert "decoder.0.attention" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gtp2"], "gtp2 is neither a folder nor a preset; did you mean 'gpt2'?"),
        (["gpt2", "--length", 0], "--batch and --length are at least 1"),
        (["gpt2", "--set", "heads=3"], "heads divides d_model"),
        (["gpt2", "--set", "d_modle=8"], "did you mean 'd_model'"),
        (["gpt2", "--set", "d_model"], "--set takes key=value"),
        (["."], ". is not a checkpoint folder: it has no config.json"),
    ],
)
def test_refused(refuse, words, said):
    assert said in refuse("trace", *words)
