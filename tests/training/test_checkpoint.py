"""The checkpoint folder: what goes in comes out, and everything that is not one is refused in one clear sentence."""
import json
import os

import numpy as np
import pytest

from minitx.data import CharTokenizer
from minitx.models import Transformer, TransformerConfig
from minitx.tasks import get_task
from minitx.training import (
    CheckpointError,
    Trainer,
    TrainingConfig,
    load_card,
    load_model,
    load_training,
    save_model,
    tensorfile,
)

pytest.importorskip("safetensors", reason="safetensors is not installed")


def small(**changes):
    config = TransformerConfig(**{"layers": 1, "d_model": 8, "heads": 2, "vocab_size": 13, "dropout": 0.1, **changes})
    return Transformer(config, rng=np.random.default_rng(3))


@pytest.fixture
def saved(tmp_path):
    save_model(tmp_path, small(), CharTokenizer("0123456789", " "), task={"name": "copy"})
    return tmp_path


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tie", [True, False])
def test_a_model_comes_back_bit_for_bit(tmp_path, dtype, tie):
    model = small(tie_embeddings=tie).astype(dtype)
    save_model(tmp_path, model, CharTokenizer("ab"))
    again, tokenizer, card = load_model(tmp_path)
    assert tokenizer == CharTokenizer("ab")
    assert card["format"] == 1
    assert again.config == model.config
    assert not again.training
    for (name, a), (other, b) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert name == other
        assert a.dtype == b.dtype == dtype
        np.testing.assert_array_equal(a.data, b.data)
    assert (again.head.weight is again.embedding.weight) == tie


def test_without_a_vocabulary(tmp_path):
    save_model(tmp_path, small())
    assert load_model(tmp_path).tokenizer is None


def test_not_a_folder(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"has no config.json"):
        load_model(tmp_path)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(CheckpointError, match="is a file"):
        load_model(tmp_path / "file")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"format": 1}', b'{"model": {}}', b"\xff\xfe\x00"])
def test_a_card_that_is_none(saved, content):
    (saved / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_model(saved)


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_a_truncated_file(saved, keep):
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is cut short, or not a safetensors file"):
        load_model(saved)


def test_a_foreign_file(saved):
    path = saved / "model.safetensors"
    path.write_bytes(b"\x80\x04\x95 a pickle, say")
    with pytest.raises(CheckpointError, match="not a safetensors file"):
        load_model(saved)
    from safetensors.numpy import save_file

    save_file({"transformer.wte.weight": np.zeros(3, np.float32)}, path)
    with pytest.raises(CheckpointError, match=r"not written by minitx: its tensors are named transformer\.wte\.weight"):
        load_model(saved)


def test_of_another_configuration(saved):
    card = load_card(saved)
    card["model"] |= {"d_model": 16, "layers": 2}
    (saved / "config.json").write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"another configuration .*d_model 8 there, 16 here; layers 1 there"):
        load_model(saved)


def test_a_newer_format(saved):
    card = load_card(saved)
    card["format"] = 2
    (saved / "config.json").write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(CheckpointError, match="has format 2, and this minitx reads up to 1: update minitx"):
        load_model(saved)


def test_an_unknown_key_in_the_card(saved):
    card = load_card(saved)
    card["model"]["d_modle"] = card["model"].pop("d_model")
    (saved / "config.json").write_text(json.dumps(card), encoding="utf-8")
    arrays, about = tensorfile.read(saved / "model.safetensors")
    tensorfile.write(saved / "model.safetensors", arrays, {**about, "model": card["model"]})
    with pytest.raises(CheckpointError, match="did you mean 'd_model'"):
        load_model(saved)


def test_missing_unknown_and_misshapen_tensors(saved):
    path = saved / "model.safetensors"
    arrays, about = tensorfile.read(path)
    name = list(arrays)[-1]
    changed = {
        "has no": {k: v for k, v in arrays.items() if k != name},
        "no place for": {**arrays, "decoder.7.weight": arrays[name]},
        "shape": {**arrays, name: arrays[name][:3]},
        "all float32 or all float64": {**arrays, name: arrays[name].astype(np.float16)},
    }
    for words, state in changed.items():
        tensorfile.write(path, state, about)
        with pytest.raises(CheckpointError, match=words):
            load_model(saved)


def test_no_run_to_resume(saved):
    with pytest.raises(CheckpointError, match=r"has no training\.safetensors, so no run to resume; --from"):
        load_training(saved)


def trainer(directory, **changes):
    task = get_task("copy", longest=3)
    config = TrainingConfig(steps=4, batch_size=3, eval_every=0, log_every=1)
    return Trainer(small(**changes), task, config, directory)


def test_training_state_of_another_model(tmp_path):
    first = trainer(tmp_path)
    first.train_step()
    first.save()
    with pytest.raises(CheckpointError, match="another configuration: d_model 8 there, 24 here"):
        trainer(tmp_path, d_model=24).load()


def test_pitfall_23_moments_follow_names_not_places(tmp_path):
    first = trainer(tmp_path)
    first.train_step()
    first.save()
    arrays, about = tensorfile.read(tmp_path / "training.safetensors")
    tensorfile.write(tmp_path / "training.safetensors", dict(reversed(arrays.items())), about)
    second = trainer(tmp_path)
    second.load()
    for name, state in first.optimizer.state.items():
        np.testing.assert_array_equal(second.optimizer.state[name]["m"], state["m"])
        assert second.optimizer.state[name]["step"] == 1


@pytest.mark.parametrize("damage", ["no generator", "no weight", "wrong optimizer"])
def test_a_damaged_training_state_is_refused_by_name(tmp_path, damage):
    first = trainer(tmp_path)
    first.train_step()
    first.save()
    path = tmp_path / "training.safetensors"
    arrays, about = tensorfile.read(path)
    if damage == "no generator":
        del about["data_rng"]
    elif damage == "no weight":
        arrays.pop(next(k for k in arrays if k.startswith("weights/")))
    else:
        about["optimizer"]["optimizer"] = "SGD"
    tensorfile.write(path, arrays, about)
    with pytest.raises(CheckpointError, match=r"training\.safetensors"):
        trainer(tmp_path).load()


def test_nothing_is_pickled(tmp_path):
    first = trainer(tmp_path)
    first.run()
    for name in os.listdir(tmp_path):
        assert b"\x80\x04\x95" not in (tmp_path / name).read_bytes()[:64]
        assert name.endswith((".json", ".jsonl", ".safetensors"))
