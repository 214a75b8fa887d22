"""Optimizers: how gradients become steps (SGD, Adam, AdamW); clipping before the step; schedules of its size."""

from minitx.optim.adam import Adam, AdamW
from minitx.optim.clip import clip_grad_norm
from minitx.optim.optimizer import Optimizer
from minitx.optim.schedule import Schedule, constant, noam, warmup_cosine, warmup_linear
from minitx.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "clip_grad_norm",
    "Schedule",
    "constant",
    "noam",
    "warmup_cosine",
    "warmup_linear",
]
