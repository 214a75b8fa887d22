"""From the configuration to an optimizer and a schedule: the one place that reads their names."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitx import optim
from minitx.training.config import TrainingConfig


def build_optimizer(model: Any, config: TrainingConfig) -> optim.Optimizer:
    if config.optimizer == "sgd":
        return optim.SGD(model, config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    kind = {"adam": optim.Adam, "adamw": optim.AdamW}[config.optimizer]
    return kind(model, config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)


def build_schedule(optimizer: optim.Optimizer, model: Any, config: TrainingConfig) -> optim.Schedule:
    """Every schedule has its peak, `lr`, at the end of the warm-up.

    So "noam" is that schedule in shape only; the peak in the paper is 1 / √(d_model · warmup).
    """
    warmup = config.warmup_steps
    factor = {
        "cosine": lambda: optim.warmup_cosine(config.steps, warmup, config.min_lr_ratio),
        "linear": lambda: optim.warmup_linear(config.steps, warmup, config.min_lr_ratio),
        "constant": lambda: optim.constant(warmup),
        "noam": lambda: _peak_1(optim.noam(model.config.d_model, max(warmup, 1)), max(warmup, 1)),
    }[config.schedule]()
    return optim.Schedule(optimizer, factor)


def _peak_1(factor: Callable[[int], float], peak: int) -> Callable[[int], float]:
    highest = factor(peak)
    return lambda t: factor(t) / highest
