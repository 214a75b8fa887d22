"""The training configuration: what it takes, what it refuses, and in which words."""
import doctest
import json

import pytest

from minitx.training import TrainingConfig


def test_defaults_survive_json():
    config = TrainingConfig(betas=(0.8, 0.9), lr=3e-4, steps=7)
    assert TrainingConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_types_are_those_of_the_defaults():
    config = TrainingConfig(lr=1, betas=[0, 0.5])  # an integer for a number, a list for a pair
    assert type(config.lr) is float
    assert config.betas == (0.0, 0.5)


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("steps", 0, ValueError, "steps is at least 1, not 0"),
        ("steps", 2.5, TypeError, "steps is a whole number, like 2000, not 2.5"),
        ("steps", True, TypeError, "steps is a whole number"),
        ("steps", "many", TypeError, "steps is a whole number, like 2000, not 'many'"),
        ("batch_size", -1, ValueError, "batch_size is at least 1"),
        ("lr", 0.0, ValueError, "lr is above 0"),
        ("lr", float("nan"), ValueError, "lr is finite"),
        ("min_lr_ratio", 1.5, ValueError, "min_lr_ratio is at most 1"),
        ("betas", (0.9, 1.0), ValueError, "betas is below 1"),
        ("betas", 0.9, TypeError, "betas is 2 numbers"),
        ("schedule", "cosin", ValueError, "schedule is one of cosine, linear, constant, noam, not 'cosin'"),
        ("optimizer", 3, TypeError, "optimizer is a word"),
        ("dtype", "float16", ValueError, "dtype is one of float32, float64"),
        ("label_smoothing", 1.0, ValueError, "label_smoothing is below 1"),
    ],
)
def test_refused(key, value, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        TrainingConfig.from_dict({key: value})


def test_unknown_key_names_the_nearest():
    with pytest.raises(ValueError, match="no training setting is called 'warmpu'; did you mean 'warmup'"):
        TrainingConfig.from_dict({"warmpu": 3})


def test_warmup_is_at_most_half_a_short_run():
    assert TrainingConfig(steps=10, warmup=100).warmup_steps == 5
    assert TrainingConfig(steps=1, warmup=100).warmup_steps == 0
    assert TrainingConfig(steps=1000, warmup=100).warmup_steps == 100


def test_the_examples_in_the_source():
    from minitx.training import config

    assert doctest.testmod(config).failed == 0
