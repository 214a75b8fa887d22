"""Every preset: the published number of parameters; small, it builds, its gradients are right, and it learns."""
import numpy as np
import pytest
from counting import count

from minitx.gradcheck import gradcheck_model
from minitx.masks import padding
from minitx.models import Transformer, TransformerConfig
from minitx.models.cost import Flops, activation_elements, flops
from minitx.models.example import example
from minitx.models.presets import PRESETS
from minitx.models.shapes import parameter_shapes, parameters_by_component, parameters_used, tree
from minitx.ops import cross_entropy
from minitx.optim import AdamW

NAMES = list(PRESETS)
B, T = 3, 7


def small(name, **changes):
    sizes = {"layers": 2, "d_model": 16, "heads": 4, "max_length": 16, "dropout": 0.0}
    kind = {"patch_dim": 5, "classes": 11} if name == "vit" else {"vocab_size": 11}
    return getattr(TransformerConfig, name)(**(sizes | kind | changes))


def build(config, dtype=np.float64):
    return Transformer(config, rng=np.random.default_rng(0)).astype(dtype)


# As published, or as the published weights have them (BERT with its masked-LM head, without its pooler).
PARAMETERS = {
    "original": 63_082_496, "bert": 109_514_298, "gpt2": 124_439_808, "t5": 222_903_552, "llama": 8_030_261_248,
    "mistral": 7_241_732_096, "mixtral": 46_702_792_704, "gemma2": 2_614_636_800, "mpt": 6_649_286_656,
    "vit": 86_567_656,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_published_number_of_parameters(name):
    config = getattr(TransformerConfig, name)()
    assert sum(parameters_by_component(config).values()) == PARAMETERS[name]
    assert parameters_used(config) == (12_879_925_248 if name == "mixtral" else PARAMETERS[name])


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    """Everything away from its initial gains and biases, and padding where there are tokens."""
    config = small(name, layers=1, d_ff=7)
    model, rng = build(config), np.random.default_rng(5)
    for p in model.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape)
    inputs, targets = example(config, B, T, rng)
    options = {} if name == "vit" else {"mask": padding([7, 4, 5])}
    if name == "bert":
        options["segments"] = rng.integers(0, 2, (B, T))
    if config.architecture == "encoder-decoder":
        options["target_mask"] = padding([6, 7, 3])

    def loss():
        out = model(*inputs, **options)
        total = cross_entropy(out.logits, targets, label_smoothing=0.1)
        for aux in out.aux_losses.values():
            total = total + aux * 0.1
        return total

    gradcheck_model(loss, model, samples=1)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls(name):
    config = small(name)
    model = build(config, np.float32)
    inputs, targets = example(config, B, T, np.random.default_rng(1))
    optimizer = AdamW(model, lr=0.01)
    losses = []
    for _ in range(30):
        out = model(*inputs)
        loss = cross_entropy(out.logits, targets)
        losses.append(loss.item())
        for aux in out.aux_losses.values():
            loss = loss + aux * 0.01
        model.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0], losses
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {np.dtype(np.float32)}


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_operations_are_those_of_the_real_model(name):
    config = small(name)
    model = build(config)
    real = {n: p.shape for n, p in model.named_parameters()}
    assert list(parameter_shapes(config).items()) == list(real.items())
    assert tree(config).splitlines()[0].endswith(f"[{model.num_parameters():,}]")
    inputs, targets = example(config, B, T, np.random.default_rng(1))
    counted = count(lambda: cross_entropy(model(*inputs).logits, targets))
    assert sum(flops(config, B, T).values(), Flops(0, 0)) == (counted.forward_total, counted.backward_total)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_for_going_back(name):
    from counting import kept

    from minitx import reference

    config = small(name)
    model = build(config)
    inputs, targets = example(config, B, T, np.random.default_rng(1))
    with reference():
        real = kept(cross_entropy(model(*inputs).logits, targets), model.parameters())
    assert activation_elements(config, B, T) == pytest.approx(real, rel=0.06)


@pytest.mark.parametrize("name", [n for n in NAMES if PRESETS[n].get("architecture") == "decoder"])
@pytest.mark.parametrize("kernel", ["textbook", "tiled"])
def test_no_decoder_sees_the_future(name, kernel):
    model = build(small(name, attention_kernel=kernel))
    ids = example(model.config, B, 13, np.random.default_rng(1)).inputs[0]
    later = ids.copy()
    later[:, 9:] = (later[:, 9:] + 1) % 11
    before, after = model(ids).logits.data, model(later).logits.data
    np.testing.assert_allclose(after[:, :9], before[:, :9], rtol=1e-12, atol=1e-13)
    assert (after[:, 9:] != before[:, 9:]).any()


def test_scaling_keeps_proportions():
    llama = TransformerConfig.llama(d_model=64, heads=8)
    assert (llama.kv_heads, llama.d_ff, llama.rope_base) == (2, 224, 500000.0)
    assert TransformerConfig.llama(heads=6, d_model=12).kv_heads == 1
    assert TransformerConfig.gemma2(d_model=64, heads=4, max_length=64).window == 32
    assert TransformerConfig.t5(d_model=64, heads=4).logit_scale == 1 / 8
    assert TransformerConfig.gemma2(heads=4).head_dim is None
    given = TransformerConfig.llama(d_model=64, heads=8, kv_heads=8, d_ff=100)
    assert (given.kv_heads, given.d_ff) == (8, 100)


def test_a_part_that_is_replaced_takes_its_settings_along():
    assert TransformerConfig.llama(position="alibi").rope_base == 10000.0
    assert TransformerConfig.gemma2(norm="layer").norm_offset == 0
    assert TransformerConfig.mixtral(experts=0).experts == 0
    assert TransformerConfig.vit(head="none").classes is None
