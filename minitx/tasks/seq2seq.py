"""What all encoder-decoder tasks share: held-out examples in batches, exact match by length, samples."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.data.batch import Batch, encoder_decoder, pad
from minitx.generation import evaluating, greedy
from minitx.ops import cross_entropy
from minitx.tasks.base import Task
from minitx.tasks.evaluation import Count, Evaluation
from minitx.tensor import Array

ROWS = 256  # of a held-out batch


class Example(NamedTuple):
    source: Array  # (n,) symbols only
    targets: Sequence[Array]  # all that are right; the first is the one that is taught


class Seq2SeqTask(Task):
    """A source, a target, and a prediction that is right or not."""

    def examples(self, size: int | None = None) -> list[Example]:
        """Held-out examples in order of length."""
        raise NotImplementedError

    def label(self, length: int) -> str:
        """The row of the table in which a source of this length counts."""
        return str(length)

    def held_out(self, size: int | None = None) -> list[Batch]:
        return [as_batch(group) for group in _groups(self.examples(size))]

    def evaluate(self, model: Any, size: int | None = None) -> Evaluation:
        nats, tokens = 0.0, 0
        counts: dict[str, list[int]] = {}  # label -> right, total
        with evaluating(model):
            for group in _groups(self.examples(size)):
                batch = as_batch(group)
                logits = model(batch.ids, batch.target_ids, mask=batch.mask, target_mask=batch.target_mask).logits
                nats += cross_entropy(logits, batch.targets, reduction="sum").item()
                tokens += batch.tokens
                for example, prediction in zip(group, predict(model, group)):
                    count = counts.setdefault(self.label(len(example.source)), [0, 0])
                    count[0] += any(np.array_equal(prediction, target) for target in example.targets)
                    count[1] += 1
        by_length = [Count(label, right, total) for label, (right, total) in counts.items()]
        return Evaluation(nats / max(tokens, 1), tokens, by_length)

    def samples(self, model: Any, n: int = 5) -> list[tuple[str, str, str]]:
        examples = self.examples()
        chosen = [examples[i] for i in np.linspace(0, len(examples) - 1, min(n, len(examples))).astype(int)]
        text = self.tokenizer.decode
        out = []
        for e, said in zip(chosen, predict(model, chosen)):
            truth = next((target for target in e.targets if np.array_equal(target, said)), e.targets[0])
            out.append((text(e.source), text(truth), text(said)))
        return out


def as_batch(examples: Sequence[Example]) -> Batch:
    return encoder_decoder(*pad([e.source for e in examples]), *pad([e.targets[0] for e in examples]))


def predict(model: Any, examples: Sequence[Example]) -> list[Array]:
    """Greedily; one place more than the longest right answer is room enough to be right, or too long."""
    batch = as_batch(examples)
    room = 1 + max((len(target) for e in examples for target in e.targets), default=0)
    return greedy(model, batch.ids, mask=batch.mask, max_new=room)


def _groups(examples: list[Example]) -> list[list[Example]]:
    return [examples[i : i + ROWS] for i in range(0, len(examples), ROWS)]
