"""The checkpoint folder: what goes in comes out, and everything that is not one is refused in one clear sentence."""
import dataclasses
import json
import os

import numpy as np
import pytest

from minitx.data import CharTokenizer
from minitx.models import Transformer, TransformerConfig
from minitx.models.run_section import run_settings
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
from minitx.training.checkpoint import save_card

pytest.importorskip("safetensors", reason="safetensors is not installed")


DIGITS = CharTokenizer("0123456789", " ")


def small(**changes):
    config = TransformerConfig(**{"layers": 1, "d_model": 8, "heads": 2, "vocab_size": 13, "dropout": 0.1, **changes})
    return Transformer(config, rng=np.random.default_rng(3))


@pytest.fixture
def saved(tmp_path):
    save_model(tmp_path, small(), DIGITS, task={"name": "copy"})
    return tmp_path


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tie", [True, False])
def test_a_model_comes_back_bit_for_bit(tmp_path, dtype, tie):
    model = small(tie_embeddings=tie).astype(dtype)
    save_model(tmp_path, model, CharTokenizer("ab"))
    again, tokenizer, card = load_model(tmp_path)
    assert tokenizer == CharTokenizer("ab")
    assert card.config == again.config == model.config
    assert card.tokenizer == "characters"
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
    save_card(saved, small(d_model=16, layers=2), DIGITS)
    with pytest.raises(CheckpointError, match=r"another configuration .*model.layers 1 there, 2 here; model.width 8"):
        load_model(saved)
    save_card(saved, small(), CharTokenizer("012345678x", " "))
    with pytest.raises(CheckpointError, match=r"another configuration than the config.json beside it: the vocabulary"):
        load_model(saved)
    save_card(saved, small(dropout=0.5, attention_kernel="tiled"), DIGITS)  # this changes nothing in what weights mean
    assert load_model(saved).model.config.dropout == 0.5


def edit(folder, change):
    card = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change(card)
    (folder / "config.json").write_text(json.dumps(card), encoding="utf-8")


def test_the_card_in_three_groups_with_its_fingerprint(saved):
    values = json.loads((saved / "config.json").read_text(encoding="utf-8"))
    assert list(values) == ["version", "fingerprint", "model", "training", "inference"]
    card = load_card(saved)
    assert values["fingerprint"] == card.fingerprint() == tensorfile.read(saved / "model.safetensors")[1]["fingerprint"]
    assert values["model"]["attention"]["heads"] == 2
    assert values["training"]["objective"] == "sequence-to-sequence"
    assert values["training"]["task"] == {"name": "copy"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda card: card["model"].update(layers=2), "fingerprint is .* changed after its weights were made"),
        (lambda card: card["model"]["vocabulary"].update(tokenizer_hash="ab"), "fingerprint is"),
        (lambda card: card.update(version=2), "version is that of a card, and this minitx reads up to 1, not 2"),
        (lambda card: card["model"].update(widht=8), "a card has no model.widht: did you mean model.width"),
        (lambda card: card["model"]["attention"].update(heads=3), "model.attention.heads: heads divides d_model"),
    ],
)
def test_a_card_that_was_changed(saved, change, words):
    edit(saved, change)
    for load in (load_card, load_model):
        with pytest.raises(CheckpointError, match=rf"config\.json: {words}"):
            load(saved)


def test_a_change_that_means_nothing(saved):
    edit(saved, lambda card: card["model"]["dropout"].update(residual=0.7))
    assert load_model(saved).model.config.dropout == 0.7


def test_another_vocabulary_and_none(saved):
    (saved / "tokenizer.json").write_text(json.dumps(CharTokenizer("abcdefghij", " ").to_dict()), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is not the one that this model was made with"):
        load_model(saved)
    (saved / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing \(tokenizer_hash\): ids would mean other"):
        load_card(saved)


def test_a_newer_format(saved):
    path = saved / "model.safetensors"
    arrays, about = tensorfile.read(path)
    tensorfile.write(path, arrays, {**about, "format": 3})
    with pytest.raises(CheckpointError, match="has format 3, and this minitx reads up to 2: update minitx"):
        load_model(saved)


# ---------------------------------------------------------------------- folders of format 1


def make_old(folder):
    """As they were written: the card flat and without a fingerprint, fields that came later absent."""
    card = load_card(folder)
    later = ("attention_kernel", "experts", "patch_dim", "logit_softcap")
    model = {name: value for name, value in card.config.to_dict().items() if name not in later}
    old = {
        "format": 1, "model": model,
        "inference": {"decoding": "greedy", "cache": None, "quantization": None, "max_prompt": 512, "max_new": 512},
    }  # fmt: skip
    if card.training.run is not None:
        task = {"objective": "next symbol", "data_boundary": card.training.data_boundary, **card.training.task}
        old |= {"training": run_settings(dataclasses.asdict(card.training)), "task": task}
    (folder / "config.json").write_text(json.dumps(old), encoding="utf-8")
    for file in folder.glob("*.safetensors"):
        arrays, about = tensorfile.read(file)
        about.pop("fingerprint", None)
        tensorfile.write(file, arrays, {**about, "format": 1, "model": model})


def test_an_old_folder_is_read(saved):
    model, tokenizer, card = load_model(saved)
    make_old(saved)
    again = load_model(saved)
    assert again.card.fingerprint() == card.fingerprint()
    assert (again.tokenizer, again.model.config) == (tokenizer, model.config)
    for a, b in zip(model.parameters(), again.model.parameters(), strict=True):
        np.testing.assert_array_equal(a.data, b.data)
    edit(saved, lambda card: card["model"].update(layers=2))
    with pytest.raises(CheckpointError, match=r"another configuration .*: model.layers 1 there, 2 here$"):
        load_model(saved)
    edit(saved, lambda card: card["model"].update(layres=2))
    with pytest.raises(CheckpointError, match=r"config\.json: .*did you mean 'layers'"):
        load_model(saved)
    edit(saved, lambda card: card.update(format=3))
    with pytest.raises(CheckpointError, match="has format 3, and this minitx reads up to 2"):
        load_model(saved)


def test_an_old_run_goes_on(tmp_path):
    whole, parts = trainer(tmp_path / "whole"), trainer(tmp_path / "parts")
    whole.run()
    parts._open_directory().close()
    parts.train_step()
    parts.save()
    make_old(tmp_path / "parts")
    assert TrainingConfig.from_dict(run_settings(dataclasses.asdict(load_card(tmp_path / "parts").training)))
    again = trainer(tmp_path / "parts")
    again.load()
    again.run()
    for name, value in whole.model.state_dict().items():
        np.testing.assert_array_equal(again.model.state_dict()[name], value)
    assert json.loads((tmp_path / "parts/config.json").read_text(encoding="utf-8"))["version"] == 1  # and is new now
    assert load_model(tmp_path / "parts").card == load_card(tmp_path / "whole")


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
