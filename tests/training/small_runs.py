"""Small runs that the tests of this folder share."""
import numpy as np

from minitx.models import Transformer, TransformerConfig
from minitx.tasks import get_task
from minitx.training import CLOCKS, Trainer, TrainingConfig, read_log

STEPS = 7


def model_of(task, **changes):
    values = {"layers": 1, "d_model": 8, "heads": 2, "dropout": 0.1, **changes}
    return Transformer(task.config(**values), rng=np.random.default_rng(3))


def trainer_of(directory=None, task=None, model=None, **changes):
    """Seven steps of copying up to three digits: a look at held-out data every 3, figures per layer every 4."""
    task = get_task("copy", longest=3) if task is None else task
    values = {"steps": STEPS, "batch_size": 5, "warmup": 2, "eval_every": 3, "log_every": 2, "detail_every": 4}
    return Trainer(model or model_of(task), task, TrainingConfig(**{**values, **changes}), directory)


def decoder(**changes):
    values = {"layers": 1, "d_model": 8, "heads": 2, "vocab_size": 13, "max_length": 8, "dropout": 0.0, **changes}
    return Transformer(TransformerConfig.gpt2(**values), rng=np.random.default_rng(3)).astype(np.float64)


def timeless(path):
    """The log but for its clocks."""
    return [{k: v for k, v in record.items() if k not in CLOCKS} for record in read_log(path / "log.jsonl")]
