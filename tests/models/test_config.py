"""The configuration refuses what cannot be built, and says why."""
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
        ({"activation": "gleu"}, "did you mean 'gelu'"),
        ({"architecture": "decoders"}, "did you mean 'decoder'"),
        ({"tie_embeddings": 1}, "tie_embeddings is true or false"),
    ],
)
def test_values_that_cannot_be_built(changes, words):
    with pytest.raises(ValueError, match=words):
        TransformerConfig.from_dict(changes)


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
