"""The noise test: trained on random tokens, a model that cannot see the answer stays at ln V.

Every batch is new, so nothing can be learned by heart, and no token says anything of another: whatever the weights are,
the expected loss is at least ln V, and a loss that is lower has seen its targets. A mask off by one goes far below.
"""
from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from minitx.audit.finding import Finding
from minitx.audit.targets import Task
from minitx.data.batch import IGNORED, Batch
from minitx.models import Transformer
from minitx.nn import Module
from minitx.op import Array
from minitx.ops import cross_entropy
from minitx.optim import AdamW, clip_grad_norm
from minitx.training.step import forward

STEPS, LAST, ROWS = 300, 30, 16  # the loss is the mean over the last batches, each measured before it is trained on
SIGMAS, LEAST = 6.0, 0.02


def noise(task: Task, seconds: float) -> Finding:
    """Train two copies with fresh weights: one to foretell the next token, one to repeat the last, `seconds` in all.

    A leak is a loss below ln V by more than six standard errors of the mean (by chance once in 10⁹ audits), and by more
    than 0.02 nats. To read a token one place too far is as hard as to read the one before: where the second copy has
    learned that, the first had the time to find a leak.
    """
    s = task.s
    if task.why_not:
        return Finding("noise", None, said=task.why_not)
    if not isinstance(s.model, Module):
        return Finding("noise", None, said="a function has no parameters to train")
    tokens = s.vocab_size - task.lowest
    bound = math.log(tokens)
    loss, error, steps = train(task, seconds / 2, lambda batch: batch)
    room = max(SIGMAS * error, LEAST)
    said = (
        f"the loss is {loss:.3f} after {steps} steps, and ln {tokens} is {bound:.3f}; lower by more than {room:.3f} "
        f"(6 standard errors, at least {LEAST}) would be a leak"
    )
    leak = loss < bound - room
    if not leak:
        other, *_ = train(task, seconds / 2, before, steps)
        if other > bound - room:
            said = f"{steps} steps are too few to tell: to repeat the token before is not learned either ({other:.3f})"
            return Finding("noise", None, said=said)
        said += f"; to repeat the token before it learns in that time ({other:.3f})"
    return Finding("noise", leak, bound - loss, said=said)


def train(task: Task, seconds: float, change: Callable[[Batch], Batch], steps: int = STEPS) -> tuple[float, float, int]:
    """The mean loss of the last batches, its standard error, and how many steps there were time for after the first."""
    model = fresh(task.s.model)
    width = getattr(task.s.config, "d_model", 32)
    optimizer = AdamW(model, lr=0.01 * min(1.0, math.sqrt(32 / width)))
    measure = task.loss or cross_entropy
    losses: list[float] = []
    start = 0.0
    while len(losses) < steps and (len(losses) < 2 or time.perf_counter() - start < seconds):
        batch = change(random_batch(task))
        loss = measure(logits(model, batch), batch.targets)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
        if len(losses) == 1:
            start = time.perf_counter()  # after the first step, which may have compiled kernels
    last = np.array(losses[-LAST:])
    return float(last.mean()), float(last.std(ddof=1) / math.sqrt(len(last))), len(losses)


def fresh(model: Module) -> Any:
    """A copy without dropout that starts anew where its configuration says how, and else from the weights it has."""
    other: Any = copy.deepcopy(model)
    if isinstance(model, Transformer):
        new: Any = Transformer(model.config, rng=np.random.default_rng(0))
        other.load_state_dict(new.state_dict())
    return other.eval()


def random_batch(task: Task) -> Batch:
    s = task.s
    if task.masked and task.objective is None:  # all targets hidden: none is read as it is
        ids: Array = s.rng.integers(0, s.vocab_size, (ROWS, s.length))
        chosen = s.rng.random(ids.shape) < 0.3
        return Batch(np.where(chosen, s.vocab_size - 1, ids), np.where(chosen, ids, IGNORED))
    N = s.length - 1
    batch = task.batch(task.rows(ROWS, N), np.full(ROWS, N))
    if s.family == "encoder-decoder" and task.objective is None:
        batch.targets[:, -1] = IGNORED  # EOS after N symbols can be known
    return batch


def before(batch: Batch) -> Batch:
    """The same, but what a place has to say is the token that stands before it: an honest answer."""
    x = batch.ids if batch.target_ids is None else batch.target_ids
    targets = np.where(batch.targets == IGNORED, IGNORED, np.roll(x, 1, axis=1))
    targets[:, 0] = IGNORED
    return replace(batch, targets=targets)


def logits(model: Any, batch: Batch) -> Any:
    """Of a Transformer, or of a module that takes ids alone."""
    result = forward(model, batch) if hasattr(model, "config") else model(batch.ids)
    return getattr(result, "logits", result)
