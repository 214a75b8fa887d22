"""The same run in sittings, to the bit; what it leaves in its folder; the best model and the last."""
import dataclasses
import math
import signal

import numpy as np
import pytest
from small_runs import STEPS, model_of, timeless, trainer_of

from minitx.models.run_section import run_settings
from minitx.tasks import get_task
from minitx.training import TrainingConfig, load_card, load_model, read_log

pytest.importorskip("safetensors", reason="safetensors is not installed")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    trainer = trainer_of(path)
    trainer.run()
    return path, trainer


def interrupted(path, step, **changes):
    """A run that gets Ctrl-C while it makes this step."""
    trainer = trainer_of(path, **changes)
    draw = trainer.task.batch

    def batch(rng, size):
        if trainer.step == step - 1:
            signal.raise_signal(signal.SIGINT)
        return draw(rng, size)

    trainer.task.batch = batch
    result = trainer.run()
    assert result.interrupted == (step < STEPS)
    assert result.step == step
    return trainer


@pytest.mark.parametrize("step", range(1, STEPS))
def test_interrupted_at_any_step_and_resumed_it_is_the_same_run(whole_run, tmp_path, step):
    """Must-show 3: the remaining log but for clocks, the weights, moments and generators, to the bit."""
    path, whole = whole_run
    interrupted(tmp_path, step)
    trainer = trainer_of(tmp_path)
    trainer.load()
    assert trainer.step == step
    result = trainer.run()
    assert not result.interrupted
    assert timeless(tmp_path) == timeless(path)
    mine, theirs = trainer.state(), whole.state()
    for name, a in theirs.weights.items():
        np.testing.assert_array_equal(mine.weights[name], a, err_msg=name)
        for moment in ("m", "v"):
            ours, other = mine.optimizer["state"][name][moment], theirs.optimizer["state"][name][moment]
            np.testing.assert_array_equal(ours, other, err_msg=name)
    for key in ("step", "best", "schedule", "data_rng", "model_rng"):
        assert mine.values[key] == theirs.values[key], key
    for file in ("config.json", "tokenizer.json", "model.safetensors"):
        assert (tmp_path / file).read_bytes() == (path / file).read_bytes(), file


@pytest.mark.parametrize("kind", ["sgd", "float64", "accumulate"])
def test_other_runs_resume_as_exactly(tmp_path, kind):
    changes = {"sgd": {"optimizer": "sgd"}, "float64": {"dtype": "float64"}, "accumulate": {"accumulate": 2}}[kind]
    whole = trainer_of(tmp_path / "whole", **changes)
    whole.run()
    interrupted(tmp_path / "parts", 4, **changes)
    trainer = trainer_of(tmp_path / "parts", **changes)
    trainer.load()
    trainer.run()
    for name, a in whole.model.state_dict().items():
        np.testing.assert_array_equal(trainer.model.state_dict()[name], a, err_msg=name)


def test_after_a_crash_the_log_is_cut_back_to_the_checkpoint(whole_run, tmp_path, monkeypatch):
    """The power fails in step 5, after lines that the checkpoint of step 3 knows nothing of."""
    path, _ = whole_run
    trainer = trainer_of(tmp_path)
    steps = trainer.train_step
    monkeypatch.setattr(trainer, "train_step", lambda: 1 / 0 if trainer.step == 4 else steps())
    with pytest.raises(ZeroDivisionError):
        trainer.run()
    assert timeless(tmp_path)[-1]["step"] == 4
    again = trainer_of(tmp_path)
    again.load()
    assert again.step == 3
    again.run()
    assert timeless(tmp_path) == timeless(path)


def test_dropout_and_data_draw_from_streams_of_their_own():
    plain, dropped = trainer_of(), trainer_of(model=model_of(get_task("copy", longest=3), dropout=0.5))
    plain.train_step(), dropped.train_step()
    assert plain.data_rng.bit_generator.state == dropped.data_rng.bit_generator.state


def test_a_run_is_not_written_over(tmp_path):
    trainer_of(tmp_path, steps=2).run()
    with pytest.raises(FileExistsError, match="holds a run already"):
        trainer_of(tmp_path).run()


def test_best_and_last_are_kept_apart(tmp_path, monkeypatch):
    trainer = trainer_of(tmp_path, eval_every=2)
    scores = iter([(0.0, 3.0), (0.0, 2.0), (0.0, 2.5), (0.0, 2.7)])  # none right; the loss decides

    class Found:
        def __init__(self, score, loss):
            self.score, self.loss = score, loss

        def to_dict(self):
            return {"loss": self.loss, "exact_match": self.score}

    weights = []

    def evaluate(model):
        weights.append(model.state_dict())
        return Found(*next(scores))

    monkeypatch.setattr(trainer.task, "evaluate", evaluate)
    trainer.run()
    best = load_model(tmp_path).model.state_dict()
    for name, a in best.items():
        np.testing.assert_array_equal(a, weights[1][name])
    assert trainer.best == [0.0, -2.0]
    again = trainer_of(tmp_path)
    again.load()
    assert again.best == [0.0, -2.0]
    np.testing.assert_array_equal(again.model.embedding.weight.data, weights[-1]["embedding.weight"])


def test_the_log_says_when(whole_run):
    path, _ = whole_run
    records = read_log(path / "log.jsonl")
    assert [r["step"] for r in records] == [1, 2, 3, 4, 6, 7]  # first, every 2, evaluated every 3, the last
    assert [r["step"] for r in records if "held_out" in r] == [3, 6, 7]
    assert [r["step"] for r in records if "layers" in r] == [4]
    assert set(records[3]["layers"]) == {"encoder.0", "decoder.0", "other"}
    assert set(records[3]["layers"]["decoder.0"]) == {"residual_rms", "attention_logit", "activation", "grad_norm"}
    total = math.sqrt(sum(row["grad_norm"] ** 2 for row in records[3]["layers"].values()))
    assert total == pytest.approx(records[3]["grad_norm"], rel=1e-6)


def test_an_interrupted_run_can_be_used_before_its_first_evaluation(tmp_path):
    interrupted(tmp_path, 1)
    assert load_model(tmp_path).model.config.d_model == 8


def test_the_card_says_what_the_run_is(whole_run):
    card = load_card(whole_run[0])
    assert card.training.task == {"name": "copy", "options": {"longest": 3}}
    assert card.training.objective == "sequence-to-sequence"
    assert card.training.data_boundary == "one example a row, padded on the right"
    settings = run_settings(dataclasses.asdict(card.training))
    assert TrainingConfig.from_dict(settings).steps == STEPS
    assert set(settings) == {field.name for field in dataclasses.fields(TrainingConfig)}
    assert card.config.d_model == 8
    assert card.inference.cache == "keys and values"


def test_watching_changes_nothing(whole_run):
    blind = trainer_of(detail_every=0)
    blind.run()
    for name, a in whole_run[1].model.state_dict().items():
        np.testing.assert_array_equal(blind.model.state_dict()[name], a, err_msg=name)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant", "noam"])
def test_every_optimizer_and_schedule_runs(optimizer, schedule):
    trainer = trainer_of(optimizer=optimizer, schedule=schedule, eval_every=0)
    before = trainer.model.state_dict()
    trainer.train_step()
    assert any((before[name] != p.data).any() for name, p in trainer.model.named_parameters())
    rates = [trainer.optimizer.lr] + [trainer.train_step()["lr"] for _ in range(STEPS - 1)]
    assert min(rates) > 0
    assert max(rates) == pytest.approx(trainer.config.lr)  # whatever the schedule, lr is the peak


def test_float64_throughout():
    trainer = trainer_of(dtype="float64")
    trainer.train_step()
    assert {p.data.dtype for p in trainer.model.parameters()} == {np.dtype(np.float64)}
    assert {s["v"].dtype for s in trainer.optimizer.state.values()} == {np.dtype(np.float64)}
