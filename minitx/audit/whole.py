"""`audit(model)`: all rows."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.audit import leaks, targets
from minitx.audit.finding import Report
from minitx.audit.noise import noise as random_tokens
from minitx.audit.subject import Subject
from minitx.audit.targets import Loss, Objective, Task
from minitx.nn import Module


def audit(
    model: Any,
    *,
    family: str | None = None,
    vocab_size: int | None = None,
    length: int = 11,
    objective: Objective | None = None,
    loss: Loss | None = None,
    noise: bool = False,
    seconds: float = 10.0,
    seed: int = 0,
    name: str | None = None,
) -> Report:
    """Does anything leak that must not? Returns a report that prints as a table.

    model      a Transformer; or any module or function, ids (B, T) → logits (B, T, V), an array, a Tensor, or an object
               that has them as `logits`. What it can be told by name is tried: mask= (a mask of minitx.masks),
               positions=, target_mask=; an "encoder-decoder" is called as model(ids, target_ids).
    family     decoder, encoder or encoder-decoder; by default what its configuration says, or "decoder"
    vocab_size by default what its configuration says
    objective  what is trained, where it is not the library's: ids (B, N), lengths (B,) → a Batch
    loss       (logits, targets) → a number, where it is not the library's cross_entropy
    noise      also train a copy on random tokens, for at most `seconds`

    A move counts above 1e-10 of the largest logit in float64, and above 1e-5 in float32: model.astype(np.float64) sees
    the smaller leaks. Nothing of the model is changed.
    """
    s = Subject(model, family, vocab_size, length, np.random.default_rng(seed))
    s.try_out()
    task = Task(s, objective, loss)
    findings = [leaks.future(s), leaks.padding(s), leaks.cross_attention(s), targets.loss(task), targets.shift(task)]
    padding_is_read = any(f.leak for f in findings[1:3])
    findings += [leaks.batch(s, padding_is_read), leaks.documents(s), leaks.incremental(s)]
    if noise:
        findings.append(random_tokens(task, seconds))
    name = name or (type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", "a function"))
    tokens = f"vocabulary {s.vocab_size}" if s.vocab_size else f"patches of {s.patch_dim} numbers"
    title = f"{name}: {s.family}, {tokens}, length {s.length}; a move counts above {s.tolerance:g} of the largest logit"
    return Report(title, findings)
