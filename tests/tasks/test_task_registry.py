"""Tasks by name, their configurations, and what goes wrong."""
import json

import pytest

from minitx.models import TransformerConfig
from minitx.tasks import TASKS, get_task, task_options


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "f.tsv"
    path.write_text("".join(f"word {i}\tWort {i}\n" for i in range(300)), encoding="utf-8")
    return path


def make(name, file, **options):
    return get_task(name, file=file if "file" in task_options(name) else None, **options)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_can_be_made_again_from_its_options(name, file):
    task = make(name, file)
    assert task.name == name
    again = get_task(name, **json.loads(json.dumps(dict(task.options))))
    assert again.options == task.options
    assert again.tokenizer == task.tokenizer


@pytest.mark.parametrize("name", TASKS)
def test_configurations(name, file):
    task = make(name, file)
    config = task.config()
    assert isinstance(config, TransformerConfig)
    assert config.vocab_size == len(task.tokenizer)
    assert config.max_length >= task.positions
    changed = task.config(layers=1, d_model=32, max_length=200)
    assert (changed.layers, changed.d_model, changed.max_length) == (1, 32, 200)
    training = task.training()
    assert {"steps", "batch_size", "lr", "warmup"} <= set(training)
    training["steps"] = -1
    assert task.training()["steps"] > 0


@pytest.mark.parametrize("name", TASKS)
def test_what_the_command_line_says(name, file):
    task = make(name, file)
    assert task.describe().startswith(f"{name}: ")
    steps = task.next_steps("runs/x")
    assert steps[0].startswith("minitx generate runs/x ")
    for line in [*task.describe().splitlines(), *steps]:
        line.encode("ascii")
        assert len(line) < 120 + len(str(file))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "decoder"}, "reverse is a task for architecture 'encoder-decoder', not 'decoder'"),
        ({"max_length": 12}, "max_length 12 is too small: reverse has sequences of 13 positions"),
        ({"vocab_size": 12}, "vocab_size 12 is too small: reverse has 13 ids"),
        ({"layer": 2}, "no key 'layer': did you mean 'layers'"),
    ],
)
def test_configurations_that_do_not_fit(changes, message):
    with pytest.raises(ValueError, match=message):
        get_task("reverse").config(**changes)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("revers", {}, "no task 'revers'; did you mean 'reverse'"),
        ("text", {}, "text needs a file: --file F"),
        ("pairs", {}, "pairs needs a file: --file F.tsv"),
        ("copy", {"file": "x"}, "copy makes up its own data and takes no file"),
        ("copy", {"longes": 5}, "copy has no option 'longes'; did you mean 'longest'"),
        ("add", {"longest": 5}, "add has no option 'longest'; it has digits"),
        ("copy", {"longest": "5"}, "longest is a whole number, not '5'"),
        ("copy", {"longest": 0}, "longest is 1 to 18 symbols, not 0"),
        ("add", {"digits": 4}, "digits is 1 to 3, not 4"),
    ],
)
def test_mistakes(name, options, message):
    with pytest.raises(ValueError, match=message):
        get_task(name, **options)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        get_task("text", file=tmp_path / "missing.txt")
