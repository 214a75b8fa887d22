"""The card: the same model in tables, JSON and TOML; messages that name the path; the fingerprint."""
import dataclasses
import json

import pytest

from minitx.models import Card, TransformerConfig
from minitx.models.card import PATHS, WITHOUT_MEANING, Inference, Training, flat, objective
from minitx.models.presets import PRESETS
from minitx.models.run_section import run_settings

SEEDS_CARD = {  # the minimal reproduction card of the course, line by line, and where it is here
    "architecture": ["model.architecture"],
    "layers": ["model.layers"],
    "width": ["model.width"],
    "attention": [f"model.attention.{key}" for key in ("heads", "kv_heads", "head_dim", "window", "kernel")],
    "position": [f"model.position.{key}" for key in ("method", "base", "scaling", "trained_length")],
    "norm": [f"model.norm.{key}" for key in ("type", "placement", "epsilon", "bias")],
    "ffn": [f"model.ffn.{key}" for key in ("activation", "width", "experts")],
    "training": [f"training.{key}" for key in ("objective", "data_boundary", "precision", "optimizer", "seeds")],
    "inference": [f"inference.{key}" for key in ("cache", "quantization", "batch", "prompt_length", "output_length")],
    "beside": ["model.vocabulary.tokenizer", "model.vocabulary.tokenizer_hash", "model.initialisation.residual_scale"],
}


def full(name="llama"):
    config = getattr(TransformerConfig, name)()
    return Card(
        config,
        "characters",
        "abc",
        Training(
            objective(config), "packed, \\ \"quoted\" é", "fp32", {"name": "adamw", "betas": [0.9, 1e-12]}, [0, 7]
        ),
        Inference("none", "int8", 3, 100, 28),
    )


def test_the_card_of_the_course():
    paths = flat(full().to_dict())
    for line in SEEDS_CARD.values():
        assert set(line) <= set(paths)


def test_every_field_of_the_configuration_has_one_place():
    assert set(PATHS) == {field.name for field in dataclasses.fields(TransformerConfig)}
    assert len(set(PATHS.values())) == len(PATHS)


@pytest.mark.parametrize("name", PRESETS)
def test_json_and_toml_round_trip(name, tmp_path):
    card = full(name)
    assert Card.from_json(card.to_json()) == card
    assert Card.from_toml(card.to_toml()) == card
    for suffix, text in ((".json", card.to_json()), (".toml", card.to_toml())):
        (tmp_path / f"card{suffix}").write_text(text, encoding="utf-8")
        assert Card.read(tmp_path / f"card{suffix}") == card


def test_scaling_is_a_table_in_both():
    card = Card(TransformerConfig.llama(rope_scaling={"type": "llama3", "factor": 8.0, "original_length": 8192}))
    assert Card.from_toml(card.to_toml()) == Card.from_json(card.to_json()) == card


def test_what_is_left_out_has_its_default():
    assert Card.from_dict({"version": 1}) == Card(TransformerConfig())
    few = {"version": 1, "model": {"width": 32, "attention": {"heads": 2}}}
    assert Card.from_dict(few).config == TransformerConfig(d_model=32, heads=2)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "version is that of a card, and this minitx reads up to 1, not None"),
        ({"version": 2}, "reads up to 1, not 2"),
        ({"version": 1, "modle": {}}, "a card has no modle: did you mean model"),
        ({"version": 1, "model": {"attention": {"haeds": 2}}}, "did you mean model.attention.heads"),
        ({"version": 1, "model": {"heads": 2}}, "a card has no model.heads"),
        ({"version": 1, "model": {"attention": 3}}, "model.attention is a table, not 3"),
        ({"version": 1, "model": {"attention": {"heads": 7}}}, "model.attention.heads: heads divides d_model"),
        ({"version": 1, "model": {"norm": {"epsilon": 0}}}, "model.norm.epsilon: norm_eps is a positive number"),
        ({"version": 1, "model": {"position": {"scaling": {"type": "linear"}}}}, "model.position.scaling: "),
        ({"version": 1, "training": {"objective": "next-tokens"}}, "training.objective .*did you mean 'next-token'"),
        ({"version": 1, "model": {"architecture": "decoder"}, "training": {"objective": "sequence-to-sequence"}},
         "training.objective of an architecture 'decoder' with head 'language-model' is next-token, not seq"),
        ({"version": 1, "training": {"optimizer": "adamw"}}, "training.optimizer is a table with its name"),
        ({"version": 1, "training": {"seeds": 3}}, r"training.seeds is a list of whole numbers, \[0\], not 3"),
        ({"version": 1, "training": 3}, "training is a table, not 3"),
        ({"version": 1, "training": {"run": 3}}, "training.run is a table, not 3"),
        ({"version": 1, "fingerprint": "abc"}, r"fingerprint is abc\.\.\., and that of this card is"),
        ({"version": 1, "inference": {"batch": 0}}, "inference.batch is a whole number, at least 1, not 0"),
        ({"version": 1, "inference": {"bach": 1}}, "no inference.bach: did you mean inference.batch"),
        ({"version": 1, "inference": {"quantization": "int4"}}, "inference.quantization is one of none, fp16, int8"),
    ],
)
def test_messages_name_the_path(values, words):
    with pytest.raises(ValueError, match=words):
        Card.from_dict(values)


OTHER = {  # for every field that matters, another value, with what it needs beside it
    "architecture": ("decoder", {}), "layers": (3, {}), "d_model": (32, {"d_ff": 100}), "bias": (False, {}),
    "heads": (2, {"head_dim": 16, "kv_heads": 2}), "kv_heads": (2, {}), "head_dim": (8, {"attention_scale": 0.25}),
    "value_dim": (8, {}), "window": (3, {"architecture": "decoder"}), "attention_kernel": ("linear", {"dropout": 0.0}),
    "window_every": (2, {"architecture": "decoder", "window": 3}), "attention_scale": (1.0, {}),
    "attention_softcap": (50.0, {}), "qk_norm": (True, {}), "attention_bias": (False, {}),
    "attention_out_bias": (False, {}), "position": ("rotary", {}), "rope_base": (5e5, {"position": "rotary"}),
    "rope_dim": (8, {"position": "rotary"}), "rope_interleaved": (True, {"position": "rotary"}),
    "rope_scaling": ({"type": "linear", "factor": 2.0}, {"position": "rotary"}),
    "relative_buckets": (16, {"position": "relative"}), "relative_max_distance": (64, {"position": "relative"}),
    "max_length": (64, {"position": "learned"}), "norm": ("rms", {}), "norm_placement": ("pre", {}),
    "norm_eps": (1e-6, {}), "norm_bias": (False, {}), "norm_offset": (1.0, {"norm": "rms"}),
    "embedding_norm": (True, {"architecture": "decoder"}), "activation": ("gelu", {}), "d_ff": (100, {}),
    "ff_bias": (False, {}), "experts": (4, {}), "experts_per_token": (1, {"experts": 4}),
    "shared_experts": (1, {"experts": 4}), "vocab_size": (33, {}), "tie_embeddings": (False, {}),
    "scale_embeddings": (False, {}), "segments": (2, {"architecture": "decoder"}),
    "patch_dim": (5, {"architecture": "encoder", "head": "none", "vocab_size": 0, "tie_embeddings": False,
                      "scale_embeddings": False}),
    "head": ("none", {}), "head_bias": (True, {}), "logit_scale": (0.5, {}), "logit_softcap": (30.0, {}),
    "head_dense": (False, {"architecture": "encoder", "head": "classification", "classes": 3}),
    "classes": (4, {"architecture": "encoder", "head": "classification"}),
    "pooling": ("mean", {"architecture": "encoder", "head": "classification", "classes": 3}),
}  # fmt: skip


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(TransformerConfig)])
def test_the_fingerprint_changes_with_what_weights_mean(field):
    if field in WITHOUT_MEANING:
        value = {"init": "normal", "scale_residual_init": True, "init_std": 0.5}.get(field, 0.3)
        beside = {"init": "normal"} if field == "init_std" else {}
        assert of(**beside, **{field: value}) == of(**beside)
        return
    value, beside = OTHER[field]
    without = beside if field not in ("classes", "patch_dim") else None
    before = of(**without) if without is not None else of()
    assert of(**beside, **{field: value}) != before


def of(**changes):
    return Card(TransformerConfig(**changes)).fingerprint()


def test_equal_ways_of_saying_it_have_one_fingerprint():
    same = {"kv_heads": 4, "head_dim": 16, "value_dim": 16, "d_ff": 256, "attention_scale": 0.25, "ff_bias": True}
    assert of(**same, attention_kernel="tiled", max_length=7) == of()
    assert of(logit_softcap=30) == of(logit_softcap=30.0)
    short = {"type": "yarn", "factor": 4.0, "original_length": 64}
    assert of(position="rotary", rope_scaling=short) == of(position="rotary", rope_scaling=short | {"beta_fast": 32.0})


@pytest.mark.parametrize(
    ("name", "beginning"), [("original", "f14d2141436c"), ("llama", "32b6569db45a"), ("gemma2", "4157b98127a8")]
)
def test_fingerprints_stay_what_they_are(name, beginning):
    """They stand in folders: with another way of making them everything that was trained before would be refused."""
    assert Card(getattr(TransformerConfig, name)()).fingerprint().startswith(beginning)


def test_the_fingerprint_covers_the_tokenizer_and_not_the_run():
    card = full()
    assert dataclasses.replace(card, tokenizer_hash="abd").fingerprint() != card.fingerprint()
    assert dataclasses.replace(card, tokenizer="byte-pair").fingerprint() != card.fingerprint()
    assert dataclasses.replace(card, training=Training(), inference=Inference()).fingerprint() == card.fingerprint()


def test_a_fingerprint_is_checked():
    card = full()
    values = json.loads(card.to_json()) | {"fingerprint": card.fingerprint()}
    assert Card.from_dict(values) == card
    values["model"]["dropout"]["residual"] = 0.3  # no change in what weights mean
    assert Card.from_dict(values).config.dropout == 0.3
    values["model"]["norm"]["epsilon"] = 0.1
    with pytest.raises(ValueError, match=r"fingerprint is .* undo the change, or leave the fingerprint out for a new"):
        Card.from_dict(values)


def test_the_flat_config_json_of_an_older_run():
    run = {
        "format": 1, "model": TransformerConfig.gpt2(layers=2).to_dict(),
        "training": {"optimizer": "adamw", "lr": 0.1, "dtype": "float32", "seed": 3, "steps": 7},
        "task": {"name": "text", "options": {}, "objective": "any", "data_boundary": "windows of running text"},
        "inference": {"decoding": "greedy", "cache": None, "quantization": None, "max_prompt": 9, "max_new": 9},
    }  # fmt: skip
    card = Card.of_flat(json.loads(json.dumps(run)), {"kind": "characters", "symbols": "ab"})
    assert card.config == Card.from_dict(run).config == TransformerConfig.gpt2(layers=2)
    wanted = Training(
        "next-token", "windows of running text", "fp32", {"name": "adamw", "lr": 0.1}, [3], run={"steps": 7},
        task={"name": "text", "options": {}},
    )  # fmt: skip
    assert card.training == wanted
    assert run_settings(dataclasses.asdict(card.training)) == run["training"]
    assert card.inference == Inference("keys and values", "none", None, 1024, 1024)
    assert card.tokenizer == "characters"
    assert len(card.tokenizer_hash) == 64
    assert Card.from_json(card.to_json()) == card


def test_what_has_nothing_to_act_on_is_not_shown():
    """Rotary's width without rotary, the scale of a language model's logits without one."""
    for name in PRESETS:
        shown = flat(full(name).in_effect())
        rotary, head = shown["model.position.method"] == "rotary", shown["model.output.head"]
        assert (shown["model.position.rotary_dim"] is not None) == rotary
        assert (shown["model.output.scale"] is not None) == (head == "language-model")
