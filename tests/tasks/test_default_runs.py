"""The promise of each toy task at its default settings, as a user runs it: held-out exact match."""
import pytest

from minitx.models import Transformer
from minitx.tasks import get_task
from minitx.training import Trainer, TrainingConfig
from minitx.training.randomness import generator


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("reverse", 0.99), ("copy", 0.999), ("sort", 0.98), ("add", 0.95)])
def test_held_out_exact_match(name, least):
    task = get_task(name)
    config = TrainingConfig.from_dict(task.training())
    model = Transformer(task.config(), rng=generator(config.seed, "model"))
    result = Trainer(model, task, config).run()
    assert result.evaluation.to_dict()["exact_match"] >= least
