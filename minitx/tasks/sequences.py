"""copy, reverse, sort: sequences of ten symbols in, the same symbols out in an order that the model has to find."""
from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from minitx.data.batch import Batch, encoder_decoder
from minitx.data.split import TENTH, check_digit, quotas
from minitx.data.tokenizer import SPECIAL, CharTokenizer
from minitx.models.config import TransformerConfig
from minitx.tasks.seq2seq import Example, Seq2SeqTask
from minitx.tensor import Array

HELD_OUT = 1000  # questions

MODEL = TransformerConfig.original(layers=2, d_model=64, heads=4, dropout=0.0).to_dict()
# Post-norm wants its warm-up. Most seeds are there after two thirds of these steps: bad luck has time to mend.
TRAINING = {
    "copy": {"steps": 1000, "batch_size": 64, "lr": 2e-3, "warmup": 200},
    "reverse": {"steps": 1200, "batch_size": 64, "lr": 2e-3, "warmup": 200},
    "sort": {"steps": 1200, "batch_size": 64, "lr": 2e-3, "warmup": 200},
}


def copied(digits: Array, lengths: Array) -> Array:
    return digits


def reversed_(digits: Array, lengths: Array) -> Array:
    """y_i = s_(n-i+1); what stands after the end of a row is not looked at by anybody."""
    return np.take_along_axis(digits, (lengths[:, None] - 1 - np.arange(digits.shape[1])) % digits.shape[1], axis=1)


def sorted_(digits: Array, lengths: Array) -> Array:
    beyond = np.arange(digits.shape[1]) >= lengths[:, None]
    return np.sort(np.where(beyond, TENTH, digits), axis=1)  # what is beyond the end stays there


RULES: dict[str, Callable[[Array, Array], Array]] = {"copy": copied, "reverse": reversed_, "sort": sorted_}


class SequenceTask(Seq2SeqTask):
    """Sequences of 1 to `longest` digits, all lengths equally often.

    Held out is a tenth of every length, by a check digit (see data/split.py). The 1,000 held-out questions are shared
    out over the lengths as evenly as these have some to give: of length 1 there is one in all, of length 2 ten (so the
    other lengths, 3 to 12, get 98 or 99 each), and where there are more than wanted, distinct ones are drawn.
    """

    def __init__(self, name: str, longest: int = 12) -> None:
        if not 1 <= longest <= 18:
            raise ValueError(f"longest is 1 to 18 symbols, not {longest}")
        self.name = name
        self.rule = RULES[name]
        self.longest = longest
        self.options = {"longest": longest}
        self.positions = longest + 1
        self.tokenizer = CharTokenizer("0123456789", separator=" ")
        self.model_defaults = MODEL
        self.training_defaults = TRAINING[name]

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        lengths = rng.integers(1, self.longest + 1, size)
        digits = rng.integers(0, TENTH, (size, self.longest))
        # Of the ten last digits all but the check digit are for training: drawn without a second try.
        last = (check_digit(digits, lengths) + rng.integers(1, TENTH, size)) % TENTH
        digits[np.arange(size), lengths - 1] = last
        return encoder_decoder(*self._ids(digits, lengths))

    def is_held_out(self, digits: Array) -> bool:
        """Does the set of held-out sequences contain this one (n,)?"""
        row, length = np.asarray(digits)[None], np.array([len(digits)])
        return bool(check_digit(row, length)[0] == digits[-1])

    def examples(self, size: int | None = None) -> list[Example]:
        if size is None or size == HELD_OUT:
            return self._default_examples
        return self._draw(size)

    @cached_property
    def _default_examples(self) -> list[Example]:
        return self._draw(HELD_OUT)

    def _draw(self, size: int) -> list[Example]:
        rng = np.random.default_rng(2017)  # always the same questions
        available = [TENTH ** (n - 1) for n in range(1, self.longest + 1)]
        out = []
        for n, (there, wanted) in enumerate(zip(available, quotas(size, available)), start=1):
            # Distinct numbers, whose digits are the first n - 1 symbols; the check digit comes after them.
            numbers = TENTH * np.sort(rng.choice(there, wanted, replace=False))
            digits = numbers[:, None] // TENTH ** np.arange(n - 1, -1, -1) % TENTH  # (wanted, n)
            lengths = np.full(wanted, n)
            digits[:, -1] = check_digit(digits, lengths)
            x, _, y, _ = self._ids(digits, lengths)
            out += [Example(source, [target]) for source, target in zip(x, y)]
        return out

    def _ids(self, digits: Array, lengths: Array) -> tuple[Array, Array, Array, Array]:
        first = len(SPECIAL)
        return digits + first, lengths, self.rule(digits, lengths) + first, lengths

    def describe(self) -> str:
        what = {"copy": "say the same sequence", "reverse": "say it backwards", "sort": "say it in ascending order"}
        return (
            f"{self.name}: read a sequence of 1 to {self.longest} digits and {what[self.name]}.\n"
            "A tenth of the sequences of every length is held out: the model never sees these while it learns."
        )

    def next_steps(self, directory: str) -> list[str]:
        others = [name for name in RULES if name != self.name]
        return [
            f'minitx generate {directory} "3 1 4 1 5"',
            f'minitx generate {directory} "{" ".join("31415926535897932384"[: self.longest + 2])}"'
            "    (longer than any it has seen: what goes wrong, and where?)",
            f"minitx train {self.name} --set layers=1     (is one layer enough?)",
            f"minitx train {others[-1]}",
        ]
