"""A task: where examples come from, which of them are held out, and what it means to be right."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minitx.data.batch import Batch
from minitx.data.tokenizer import CharTokenizer
from minitx.models.config import TransformerConfig
from minitx.tasks.evaluation import Evaluation


class Task:
    """What the trainer needs to know. Subclasses: sequences, addition (made up), text and pairs (from a file).

    `batch` is a function of the generator alone, so that a run resumes by restoring the generator, and no held-out
    example is ever in a batch. Everything about the held-out set is fixed: two models are asked the same questions.
    """

    name: str
    tokenizer: CharTokenizer
    options: Mapping[str, Any]  # what `get_task(name, **options)` needs to make this task again
    positions: int  # the longest sequence that the task shows to a model, special ids included
    model_defaults: Mapping[str, Any]  # measured: what learns the task robustly in a few minutes
    training_defaults: Mapping[str, Any]

    def config(self, **changes: Any) -> TransformerConfig:
        """The model that suits the task, with `changes`."""
        defaults = {**self.model_defaults, "vocab_size": len(self.tokenizer), "max_length": max(64, self.positions)}
        config = TransformerConfig.from_dict({**defaults, **changes})
        wanted = self.model_defaults["architecture"]
        if config.architecture != wanted:
            raise ValueError(f"{self.name} is a task for architecture {wanted!r}, not {config.architecture!r}")
        if config.vocab_size < len(self.tokenizer):
            raise ValueError(f"vocab_size {config.vocab_size} is too small: {self.name} has {len(self.tokenizer)} ids")
        if config.max_length < self.positions:
            raise ValueError(self.too_long(config.max_length))
        return config

    def too_long(self, max_length: int) -> str:
        return (
            f"max_length {max_length} is too small: {self.name} has sequences of {self.positions} positions "
            "(special ids included)"
        )

    def training(self) -> dict[str, Any]:
        """Defaults for the training configuration: steps, batch_size, lr, ..."""
        return dict(self.training_defaults)

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        """`size` training examples."""
        raise NotImplementedError

    def held_out(self, size: int | None = None) -> list[Batch]:
        """The held-out examples (about `size` of them), in batches."""
        raise NotImplementedError

    def evaluate(self, model: Any, size: int | None = None) -> Evaluation:
        """How well the model does on the held-out examples."""
        raise NotImplementedError

    def samples(self, model: Any, n: int = 5) -> list[tuple[str, str, str]]:
        """n held-out examples as text: (input, truth, prediction)."""
        raise NotImplementedError

    def describe(self) -> str:
        """What is to be learned, and from what, in a few lines."""
        raise NotImplementedError

    def next_steps(self, directory: str) -> list[str]:
        """Commands to try after a run that was saved in `directory`."""
        raise NotImplementedError
