"""What a model is to say, and what counts: the rows about objective and loss."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minitx.audit.finding import Finding
from minitx.audit.subject import Subject
from minitx.data.batch import IGNORED, Batch, language_model
from minitx.data.objectives import masked_lm, next_token, sequence_to_sequence
from minitx.data.tokenizer import SPECIAL
from minitx.models import Output
from minitx.op import Array
from minitx.tensor import Tensor
from minitx.training.config import TrainingConfig
from minitx.training.step import backward

Objective = Callable[..., Batch]  # (ids (B, N), lengths (B,)), or of pairs (sources, targets), lists of rows, → a Batch
Loss = Callable[[Tensor, Array], Tensor]  # (logits, targets) → a number

SEEN_BY_DESIGN = 0.2  # of the targets of a masked model one in ten is read as it is; this leaves room for chance


class Task:
    """The objective and the loss of a subject, on rows of given lengths."""

    def __init__(self, s: Subject, objective: Objective | None, loss: Loss | None) -> None:
        self.s, self.objective, self.loss = s, objective, loss
        self.why_not = ""
        if objective is None and s.head in ("classification", "tokens", "none"):
            what = {"classification": "a class for each row", "tokens": "a label for each token"}
            self.why_not = f"its targets, {what.get(s.head, 'whatever reads its hidden vectors')}, are not its inputs"
        # An encoder-decoder's rows are symbols: BOS and EOS are set by the objective.
        self.lowest = min(len(SPECIAL), s.vocab_size - 2) if s.family == "encoder-decoder" else 0

    @property
    def masked(self) -> bool:
        """Are targets tokens that are hidden, not the next ones?"""
        return self.s.family == "encoder"

    def rows(self, batch: int, length: int) -> Array:
        """Random ids (B, N)."""
        return self.s.rng.integers(self.lowest, self.s.vocab_size, (batch, length))

    def other(self, ids: Array, k: int) -> Array:
        """The same rows with another token at place k."""
        ids, n = ids.copy(), self.s.vocab_size - self.lowest
        ids[:, k] = (ids[:, k] - self.lowest + self.s.rng.integers(1, n, len(ids))) % n + self.lowest
        return ids

    def batch(self, ids: Array, lengths: Array) -> Batch:
        """The batch of these rows, the same draws every time."""
        if self.s.family == "encoder-decoder":
            sources = [np.full(3, self.lowest) for _ in ids]
            make = self.objective or sequence_to_sequence
            return make(sources, [row[:n] for row, n in zip(ids, lengths)])
        if self.objective is not None:
            return self.objective(ids, lengths)
        if self.masked:
            V = self.s.vocab_size
            return masked_lm(ids, np.random.default_rng(0), V, V - 1, lengths=lengths, p=0.5)
        return next_token(ids, lengths)


    def measured(self, logits: Tensor, batch: Batch) -> float:
        """The loss, with its gradient in `logits.grad`: as a training step has it, or as was given."""
        if self.loss is None:
            return backward(lambda *_, **__: Output(logits, logits, {}, {}), batch, TrainingConfig())
        value = self.loss(logits, batch.targets)
        value.backward()
        return value.item()


def read(batch: Batch) -> Array:
    """What stands at the places that have targets."""
    return batch.ids if batch.target_ids is None else batch.target_ids


def loss(task: Task) -> Finding:
    """Has the loss a gradient where no target is, and is it the mean over those that are?"""
    s = task.s
    if task.why_not and s.head != "tokens":
        return Finding("loss", None, said=task.why_not)
    N = s.length
    lengths = np.array([N, (N + 1) // 2 + 1, 2])
    if s.head == "tokens" and task.objective is None:
        ends = lengths
        batch = Batch(s.draw(3), np.where(np.arange(N) < lengths[:, None], 0, IGNORED))
    else:
        # Row b has as many targets as it has tokens after the first (an encoder-decoder: its tokens and EOS).
        ends = lengths if task.masked else lengths + 1 if s.family == "encoder-decoder" else lengths - 1
        batch = task.batch(task.rows(3, N), lengths)
    targets = batch.targets
    counts = (np.arange(targets.shape[1]) < ends[:, None]) & (targets != IGNORED)
    V = max(s.vocab_size, int(targets.max()) + 1)
    logits = Tensor(s.rng.standard_normal((*targets.shape, V)), requires_grad=True)
    value = task.measured(logits, batch)
    gradient = np.abs(np.zeros(logits.shape) if logits.grad is None else logits.grad).max(-1)  # (B, T)
    leaking = (gradient > 0) & ~counts
    if leaking.any():
        t = int(np.flatnonzero(leaking.any(0))[0])
        b = int(np.flatnonzero(leaking[:, t])[0])
        said = f"row {b}, position {t} is no valid target, and the loss has a gradient there"
        return Finding("loss", True, float(gradient[leaking].max()), (b, t), said=said)
    z = logits.data - logits.data.max(-1, keepdims=True)
    nats = np.log(np.exp(z).sum(-1)) - np.take_along_axis(z, np.where(counts, targets, 0)[..., None], -1)[..., 0]
    right = float(nats[counts].mean())
    off = abs(value - right)
    if off > 1e-9 * right:
        said = f"the loss is {value:.6g}, and {right:.6g} is the mean over the {counts.sum()} valid targets"
        return Finding("loss", True, off, said=said)
    return Finding("loss", False, off)


def shift(task: Task) -> Finding:
    """Change one token of the text: where it is a target, does anything change that this place may read?"""
    if task.why_not:
        return Finding("shift", None, said=task.why_not)
    makers: list[Objective] = [task.batch]
    if task.objective is None and task.s.family == "decoder":
        makers.append(lambda ids, lengths: language_model(ids))  # of running text
    findings = [_shift(task, make) for make in makers]
    return next((f for f in findings if f.leak), findings[0])


def _shift(task: Task, make: Objective) -> Finding:
    s = task.s
    N, B = s.length + (not task.masked), 16 if task.masked else 1
    ids, lengths = task.rows(B, N), np.full(B, N)
    before = make(ids, lengths)
    seen = np.zeros(before.targets.shape, np.bool_)
    by = np.zeros(before.targets.shape, int)
    for k in range(N):
        after = make(task.other(ids, k), lengths)
        moved, inputs = after.targets != before.targets, read(after) != read(before)
        at = np.arange(inputs.shape[1])
        visible = inputs if task.masked else (inputs[:, None] & (at <= at[:, None])).any(2)  # (B, T): what t may read
        seen |= moved & visible
        by[moved & visible] = k
    share = float(seen.sum() / max((before.targets != IGNORED).sum(), 1))
    if share <= (SEEN_BY_DESIGN if task.masked else 0.0):
        said = f"{share:.0%} of the targets are read as they are: by design, one in ten" if task.masked else ""
        return Finding("shift", False, share, said=said)
    t = int(np.flatnonzero(seen.any(0))[0])
    b = int(np.flatnonzero(seen[:, t])[0])
    said = f"position {t} reads its own target, token {by[b, t]} of the text; so do {share:.0%} of all"
    return Finding("shift", True, share, (b, t), int(by[b, t]), said)
