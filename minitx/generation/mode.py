"""Evaluation mode for a stretch of code: no dropout, and afterwards every module is in the mode in which it was."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minitx.settings import no_grad


@contextmanager
def evaluation(model: Any) -> Iterator[None]:
    """Inside: no dropout. (A generator may have this around its steps; `no_grad` has to be its decorator.)"""
    before = [(module, module.training) for _, module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside: no dropout and no tape."""
    with evaluation(model), no_grad():
        yield
