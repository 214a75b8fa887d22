"""The configuration refuses what cannot be built, and says why."""
import dataclasses

import pytest

from minitx.models import TransformerConfig


def test_an_unknown_key_names_the_nearest_right_one():
    with pytest.raises(ValueError, match="no key 'd_modle': did you mean 'd_model'"):
        TransformerConfig.from_dict({"d_modle": 3})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_model": 10, "heads": 4}, "heads divides d_model"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads divides heads"),
        ({"layers": 0}, "layers is a whole number, at least 1, not 0"),
        ({"layers": True}, "layers is a whole number"),
        ({"d_ff": 2.5}, "d_ff is a whole number"),
        ({"dropout": 1.0}, "dropout is a probability"),
        ({"norm_eps": 0}, "norm_eps is a positive number"),
        ({"activation": "geluu"}, "did you mean 'gelu'"),
        ({"architecture": "decoders"}, "did you mean 'decoder'"),
        ({"tie_embeddings": 1}, "tie_embeddings is true or false"),
    ],
)
def test_values_that_cannot_be_built(changes, words):
    with pytest.raises(ValueError, match=words):
        TransformerConfig.from_dict(changes)


# Alone each of these is a value that exists; what refuses it is another field.
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position": "rotary", "d_model": 12, "heads": 4}, "head_dim is even with position 'rotary'.*not 3.*rope_dim"),
        ({"position": "rotary", "rope_dim": 5}, "rope_dim is even with position 'rotary'"),
        ({"position": "rotary", "rope_dim": 18}, "rope_dim is at most head_dim, 16, not 18"),
        ({"position": "rotary", "rope_base": 0.5}, "rope_base: .*above 1"),
        ({"position": "rotary", "rope_scaling": {"type": "yarm"}}, "rope_scaling: .*did you mean 'yarn'"),
        ({"position": "rotary", "rope_scaling": {"type": "linear"}}, "rope_scaling: .*factor of linear.*missing"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling belongs to position 'rotary'.*ignored"),
        ({"rope_base": 5e5}, "rope_base belongs to position 'rotary', and position is 'sinusoidal'"),
        ({"position": "relative", "relative_buckets": 7}, "relative_buckets, relative_max_distance: .*even"),
        ({"position": "relative", "relative_max_distance": 4}, "relative_max_distance: .*above half"),
        ({"relative_buckets": 8}, "relative_buckets belongs to position 'relative'"),
        ({"architecture": "decoder", "window": 0}, "window is a whole number, at least 1, not 0"),
        ({"window": 3}, "window belongs to architecture 'decoder'"),
        ({"architecture": "decoder", "window_every": 2}, "window_every 2 says which layers .*set window"),
        ({"experts": 2, "experts_per_token": 3}, "experts_per_token is at most experts: 3 of 2"),
        ({"experts": -1}, "experts is a whole number, at least 0"),
        ({"experts_per_token": 1}, "belong to a mixture: set experts"),
        ({"shared_experts": 1}, "belong to a mixture: set experts"),
        ({"norm": "rms", "norm_bias": True}, "norm_bias: an RMSNorm has no bias"),
        ({"norm_offset": 1.0}, "norm_offset belongs to norm 'rms'"),
        ({"norm": "rms", "norm_offset": 2}, "norm_offset is 0 .* or 1"),
        ({"norm_placement": "sandwich"}, "norm_placement is one of pre, post, both"),
        ({"architecture": "decoder", "vocab_size": 0}, "vocab_size: 'decoder' reads token ids and needs a vocabulary"),
        ({"architecture": "encoder"}, "head of an architecture 'encoder' is one of masked-lm.*comes next"),
        ({"architecture": "decoder", "head": "masked-lm"}, "head of an architecture 'decoder' is one of"),
        ({"head": "classification", "classes": 3}, "head of an architecture 'encoder-decoder'"),
        ({"architecture": "encoder", "head": "tokens"}, "classes: a head 'tokens' has to know"),
        ({"classes": 3}, "classes belongs to head"),
        ({"architecture": "encoder", "head": "masked-lm", "pooling": "last"}, "pooling belongs to head"),
        ({"architecture": "encoder", "head": "none", "head_bias": True}, "head_bias belongs to head 'language-model'"),
        ({"segments": 2}, "segments belongs to architecture 'decoder' or 'encoder'"),
        ({"architecture": "decoder", "patch_dim": 3}, "patch_dim belongs to architecture 'encoder'"),
        ({"architecture": "encoder", "head": "none", "patch_dim": 3}, "vocab_size 32 is about tokens.* to 0"),
        ({"attention_kernel": "linear"}, "attention_dropout 0.1 acts on attention's scores.*set it to 0"),
        ({"attention_kernel": "linear", "dropout": 0.0, "position": "alibi"}, "position 'alibi' acts on .*scores"),
        ({"attention_kernel": "linear", "dropout": 0.0, "attention_softcap": 9.0}, "attention_softcap 9.0 acts on"),
        ({"attention_softcap": 0}, "attention_softcap is a positive number"),
        ({"logit_softcap": float("inf")}, "logit_softcap is a positive number"),
        ({"logit_softcap": True}, "logit_softcap is a positive number"),
        ({"qk_norm": 1}, "qk_norm is true or false"),
        ({"attention_bias": "no"}, "attention_bias is true or false"),
        ({"value_dim": 0}, "value_dim is a whole number"),
    ],
)
def test_combinations_that_cannot_be_built(changes, words):
    with pytest.raises(ValueError, match=words):
        TransformerConfig.from_dict(changes)


def test_every_field_has_a_rule():
    """A field of any kind takes no value of another kind."""
    for field in dataclasses.fields(TransformerConfig):
        with pytest.raises(ValueError, match=field.name):
            TransformerConfig(**{field.name: object()})


def test_what_follows_is_filled_in_and_what_has_no_effect_is_none():
    said = TransformerConfig.llama(d_model=32, heads=4).resolved()
    assert (said["head_dim"], said["rope_dim"], said["kv_heads"], said["attention_scale"]) == (8, 8, 1, 8**-0.5)
    assert said["relative_buckets"] is None
    assert TransformerConfig().resolved()["rope_base"] is None


def test_round_trip_and_replace():
    config = TransformerConfig.gpt2(layers=3, d_model=24, heads=4)
    assert TransformerConfig.from_dict(config.to_dict()) == config
    assert config.replace(heads=2).heads == 2
    assert config.d_ff is None  # follows d_model


def test_presets_have_the_published_sizes():
    assert TransformerConfig.original().d_ff == 2048
    assert TransformerConfig.original(d_model=64, heads=2).d_ff is None
    gpt2 = TransformerConfig.gpt2()
    assert (gpt2.layers, gpt2.d_model, gpt2.heads, gpt2.max_length, gpt2.vocab_size) == (12, 768, 12, 1024, 50257)
