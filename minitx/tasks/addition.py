"""add: decimal addition as characters, "58+647" -> "705". The carry makes every digit depend on those to its right."""
from __future__ import annotations

from functools import cached_property

import numpy as np

from minitx.data.batch import Batch, encoder_decoder
from minitx.data.split import TENTH, mix, quotas
from minitx.data.tokenizer import SPECIAL, CharTokenizer
from minitx.models.config import TransformerConfig
from minitx.tasks.seq2seq import Example, Seq2SeqTask
from minitx.tensor import Array

HELD_OUT = 1000  # questions
FIRST = len(SPECIAL)  # the id of digit 0
PLUS = FIRST + 10
SALT = 7_000_000  # with this one the share is a tenth also among the few sums of single digits: 10 of 100


class AddTask(Seq2SeqTask):
    """Two numbers of 1 to `digits` digits each, written without leading zeros, every pair of widths equally often.

    A sum is held out together with its mirror image (if 58+647 is, so is 647+58: to have seen one would be to know the
    other), by a hash of the two numbers: a tenth. The 1,000 held-out questions are shared out over the lengths of the
    source as evenly as these have some to give; of the shortest, "3+8", there are only ten.
    """

    name = "add"

    def __init__(self, digits: int = 3) -> None:
        if not 1 <= digits <= 3:
            raise ValueError(f"digits is 1 to 3, not {digits}")
        self.digits = digits
        self.options = {"digits": digits}
        self.positions = 2 * digits + 2
        self.tokenizer = CharTokenizer("0123456789+")
        self.model_defaults = MODEL
        self.training_defaults = TRAINING

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        pairs = self._draw(rng, size)
        while (again := is_held_out(pairs)).any():
            pairs[again] = self._draw(rng, int(again.sum()))
        return encoder_decoder(*sources(pairs), *written(pairs.sum(1)))

    def _draw(self, rng: np.random.Generator, size: int) -> Array:
        """Pairs of numbers (size, 2): for each a width, then any number of that width."""
        high = 10 ** rng.integers(1, self.digits + 1, (size, 2))
        low = np.where(high == 10, 0, high // 10)
        return rng.integers(low, high)

    def examples(self, size: int | None = None) -> list[Example]:
        size = HELD_OUT if size is None else size
        rng = np.random.default_rng(2017)  # always the same questions
        pairs, lengths = self._held_out_pairs
        supply = [pairs[lengths == n] for n in range(3, 2 * self.digits + 2)]
        shares = quotas(size, [len(some) for some in supply])
        chosen = np.concatenate([rng.permutation(some)[:share] for some, share in zip(supply, shares)])
        return [
            Example(x[:n], [y[:m]])
            for x, n, y, m in zip(*sources(chosen), *written(chosen.sum(1)))
        ]  # fmt: skip

    @cached_property
    def _held_out_pairs(self) -> tuple[Array, Array]:
        """All of them, (n, 2), and the lengths of their sources (n,)."""
        top = 10**self.digits
        pairs = np.stack(np.divmod(np.arange(top * top), top), 1)
        pairs = pairs[is_held_out(pairs)]
        return pairs, width(pairs).sum(1) + 1

    def describe(self) -> str:
        return (
            f"add: read two numbers of up to {self.digits} digits, as characters, and write their sum.\n"
            "A tenth of the sums is held out, each with its mirror image: the model never sees these while it learns."
        )

    def next_steps(self, directory: str) -> list[str]:
        return [
            f'minitx generate {directory} "999+1"     (the longest carry)',
            f'minitx generate {directory} "1234+1"    (a number wider than any it has seen)',
            "minitx train reverse",
        ]


def is_held_out(pairs: Array) -> Array:
    """(n, 2) → (n,): the same answer for a + b and b + a."""
    number = SALT + pairs.min(1) * 1000 + pairs.max(1)
    held: Array = mix(number) % np.uint64(TENTH) == 0
    return held


def width(numbers: Array) -> Array:
    """How many digits each has."""
    return 1 + (numbers >= 10) + (numbers >= 100) + (numbers >= 1000)


def written(numbers: Array) -> tuple[Array, Array]:
    """Numbers (n,) → ids of their digits, most significant first (n, 4), and their widths (n,)."""
    widths = width(numbers)
    power = np.maximum(widths[:, None] - 1 - np.arange(4), 0)
    return numbers[:, None] // 10**power % 10 + FIRST, widths


def sources(pairs: Array) -> tuple[Array, Array]:
    """Pairs (n, 2) → the ids of "a+b" (n, 9), and the lengths (n,)."""
    (a, a_widths), (b, b_widths) = written(pairs[:, 0]), written(pairs[:, 1])
    place, end = np.arange(9), a_widths[:, None]
    out = np.where(place < end, np.pad(a, ((0, 0), (0, 5))), PLUS)
    after = (place > end) & (place <= end + b_widths[:, None])
    out[after] = b[np.arange(4) < b_widths[:, None]]  # row by row on both sides
    return out, a_widths + 1 + b_widths


MODEL = TransformerConfig.original(layers=2, d_model=64, heads=4, dropout=0.0).to_dict()
TRAINING = {"steps": 3000, "batch_size": 64, "lr": 2e-3, "warmup": 200, "eval_every": 500}
