"""A run that stops: Ctrl-C once, Ctrl-C twice, numbers that are not finite."""
import os
import signal
import threading

import numpy as np
import pytest
from small_runs import trainer_of

from minitx.training import NotFinite
from minitx.training.interrupt import Interrupt

pytest.importorskip("safetensors", reason="safetensors is not installed")


@pytest.mark.parametrize("name", ["embedding.weight", "decoder.0.feedforward.up.weight"])
def test_a_loss_that_is_not_finite_stops_the_run_by_name(tmp_path, name):
    trainer = trainer_of(tmp_path, save_every=1)
    trainer.train_step()
    trainer.save()
    parameters = dict(trainer.model.named_parameters())
    with parameters[name].writing() as value:
        value[...] = np.inf
    with pytest.raises(NotFinite, match=r"step 2: the loss is nan.*the weights themselves are not finite in") as error:
        trainer.run()
    assert name in str(error.value)
    assert "lower lr" in str(error.value)
    assert "detect_anomaly" in str(error.value)
    again = trainer_of(tmp_path)
    again.load()  # the checkpoint of the step before is whole
    assert again.step == 1
    assert all(np.isfinite(p.data).all() for p in again.model.parameters())


def test_a_gradient_that_is_not_finite_stops_the_run_by_name(monkeypatch):
    trainer = trainer_of()
    target = dict(trainer.model.named_parameters())["embedding.weight"]
    before = trainer.model.state_dict()
    target.register_hook(lambda g: g * np.nan)
    with pytest.raises(NotFinite, match=r"step 1: the gradient is not finite in embedding\.weight\. The update"):
        trainer.run()
    for name, a in trainer.model.state_dict().items():
        np.testing.assert_array_equal(a, before[name])


def test_a_second_interrupt_stops_at_once(tmp_path):
    trainer = trainer_of(tmp_path)
    draw = trainer.task.batch

    def batch(rng, size):
        if trainer.step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return draw(rng, size)

    trainer.task.batch = batch
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert signal.getsignal(signal.SIGINT) is before
    again = trainer_of(tmp_path)
    again.load()
    assert again.step == 3
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_the_handler_is_the_main_threads_business():
    found = []

    def work():
        with Interrupt() as interrupt:
            found.append((interrupt.asked, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
