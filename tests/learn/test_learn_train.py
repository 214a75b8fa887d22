"""A learner's functions in the place of minitx's: the model trains on them, and with right ones as with its own."""
from contextlib import ExitStack

import numpy as np
import pytest
from answers import ANSWERS

from minitx.learn import check
from minitx.learn.exercises import add, attention_weights, cross_entropy, embedding, layer_norm, linear
from minitx.learn.flow import Course
from minitx.learn.inside import loaded
from minitx.learn.stand_in import op_of, stand_in
from minitx.learn.train import chart, watched
from minitx.models import Transformer
from minitx.op import registry
from minitx.settings import reference
from minitx.tasks import get_task
from minitx.tensor import Tensor
from minitx.training import Trainer, TrainingConfig
from minitx.training.randomness import generator

EXERCISES = [e.EXERCISE for e in (add, attention_weights, cross_entropy, embedding, layer_norm, linear)]


def function(slug, old="", new=""):
    space = {}
    exec(ANSWERS[slug].replace(old, new) if old else ANSWERS[slug], space)
    return space[slug.replace("-", "_")]


def one_step(rules):
    task = get_task("reverse", longest=4)
    config = TrainingConfig(steps=2, batch_size=3, warmup=0)
    model = Transformer(task.config(layers=1, d_model=8, d_ff=16, heads=2), rng=generator(0, "model"))
    trainer = Trainer(model, task, config)
    with reference(), ExitStack() as stack:
        for exercise, rule in rules:
            stack.enter_context(op_of(exercise).using(rule))
        first = trainer.train_step()["loss"]
    return first, {name: p.grad.copy() for name, p in model.named_parameters()}


def test_gradients_of_a_model_are_those_of_minitx():
    loss, gradients = one_step([])
    called = []

    def counted(exercise):
        rule = stand_in(exercise, function(exercise.slug))
        return lambda *args, **options: called.append(exercise.slug) or rule(*args, **options)

    loss2, gradients2 = one_step([(e, counted(e)) for e in EXERCISES])
    assert set(called) == {e.slug for e in EXERCISES}
    assert loss2 == pytest.approx(loss, rel=1e-5)
    for name, g in gradients.items():
        assert gradients2[name].dtype == np.float32
        assert np.abs(gradients2[name] - g).max() <= 1e-4 * np.abs(g).max() + 1e-7, name


def test_a_wrong_function_changes_the_gradients():
    _, right = one_step([])
    wrong = function("layer-norm", " - xhat * (dxhat * xhat).mean(-1, keepdims=True)", "")
    _, gradients = one_step([(layer_norm.EXERCISE, stand_in(layer_norm.EXERCISE, wrong))])
    assert any(np.abs(gradients[n] - g).max() > 1e-3 * np.abs(g).max() for n, g in right.items())


def test_what_the_exercise_leaves_out_is_left_to_the_op():
    rule = stand_in(attention_weights.EXERCISE, function("attention-weights"))
    q = Tensor(np.random.default_rng(0).standard_normal((2, 3, 5, 7)))
    bias = np.ones((5, 5))
    plain = registry["attention"](q, q, q, bias=bias).numpy()
    with registry["attention"].using(rule):
        assert np.allclose(registry["attention"](q, q, q, bias=bias).numpy(), plain)


def test_the_chart_shows_both():
    text = chart([3.0, 2.0, 1.0], [3.0, 2.0, 2.0])
    assert "o" in text
    assert "." in text.replace("3.00", "")


def test_in_a_notebook(capsys):
    assert check(function("softmax"))
    assert not check(function("softmax", "- (dy * y)", "+ (dy * y)"), lang="en")
    said = capsys.readouterr().out
    assert "term 2 has the wrong sign" in said
    with pytest.raises(ValueError, match="no exercise asks"):
        check(one_step)


def test_a_function_that_stops_in_training_is_told_at_its_line(tmp_path):
    file = tmp_path / "linear.py"
    text = ANSWERS["linear"].replace("    y = x", "    assert x.dtype == np.float64\n    y = x", 1)
    file.write_text(text, "utf-8")
    mine = watched(Course("en", str(tmp_path)), "linear", loaded(linear.EXERCISE, str(file.resolve())))
    with pytest.raises(ValueError, match="stopped in training") as stopped:
        one_step([(linear.EXERCISE, stand_in(linear.EXERCISE, mine))])
    assert "AssertionError" in str(stopped.value)
    assert "line 5" in str(stopped.value)


def test_an_unwritten_cell_of_a_notebook(capsys):
    assert not check(..., "kv-bytes", lang="en")
    assert "Open" not in capsys.readouterr().out
