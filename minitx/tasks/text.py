"""text: a language model on the characters of your own file. It learns to say the next character, at every place."""
from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from minitx.data.batch import Batch, language_model
from minitx.data.files import read_text
from minitx.data.split import TENTH
from minitx.data.tokenizer import CharTokenizer
from minitx.generation import evaluating, generate
from minitx.models.config import TransformerConfig
from minitx.ops import cross_entropy
from minitx.tasks.base import Task
from minitx.tasks.evaluation import Evaluation
from minitx.tensor import Array

HELD_OUT = 256  # windows looked at in one evaluation, at most
ROWS = 32  # of a held-out batch
GRAM = 8
TEMPERATURE = 0.6  # of the samples


class TextTask(Task):
    """Windows of `context` characters from anywhere in the first nine tenths of the file; the last tenth is held out.

    The vocabulary is that of the whole file, so that the held-out tail has no character without an id.
    """

    name = "text"

    def __init__(self, file: str, context: int = 64) -> None:
        self.file, self.context = str(file), context
        self.options = {"file": self.file, "context": context}
        self.text = read_text(file)
        needed = TENTH * (context + 1)
        if context < 1:
            raise ValueError(f"context is at least 1 character, not {context}")
        if len(self.text) < needed:
            most = len(self.text) // TENTH - 1
            advice = f"a longer text, or context={most}" if most >= 8 else "a longer text"
            raise ValueError(
                f"{file} has {len(self.text)} characters, and a context of {context} needs at least {needed} "
                f"(a tenth is held out): give {advice}"
            )
        self.tokenizer = CharTokenizer.of(self.text)
        self.positions = context
        self.model_defaults = MODEL
        self.training_defaults = TRAINING
        ids = self.tokenizer.encode(self.text).astype(np.int32)
        self.cut = len(ids) - len(ids) // TENTH
        self.train, self.tail = ids[: self.cut], ids[self.cut :]

    def config(self, **changes: Any) -> TransformerConfig:
        return super().config(**{"max_length": self.context, **changes})

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        starts = rng.integers(0, len(self.train) - self.context, size)
        return language_model(self.train[starts[:, None] + np.arange(self.context + 1)])  # (size, context + 1)

    def held_out(self, size: int | None = None) -> list[Batch]:
        """Windows side by side, each character predicted once; if they are more than `size`, some from all over."""
        windows = self._tail_windows
        keep = np.linspace(0, len(windows) - 1, min(len(windows), HELD_OUT if size is None else size)).astype(int)
        return [language_model(windows[keep[i : i + ROWS]]) for i in range(0, len(keep), ROWS)]

    @property
    def _tail_windows(self) -> Array:
        n = (len(self.tail) - 1) // self.context
        windows: Array = self.tail[self.context * np.arange(n)[:, None] + np.arange(self.context + 1)]
        return windows  # (n, context + 1)

    def evaluate(self, model: Any, size: int | None = None) -> Evaluation:
        nats, tokens = 0.0, 0
        with evaluating(model):
            for batch in self.held_out(size):
                nats += cross_entropy(model(batch.ids).logits, batch.targets, reduction="sum").item()
                tokens += batch.tokens
        loss = nats / tokens
        bits = {"bits_per_character": loss / math.log(2), "held_out_8_grams_seen_in_training": self.seen_grams}
        return Evaluation(loss, tokens, metrics=bits)

    @cached_property
    def seen_grams(self) -> float:
        """The share of the tail's runs of 8 characters that also stand in the training text: mere repetition."""
        head, tail = self.text[: self.cut], self.text[self.cut :]
        wanted = Counter(tail[i : i + GRAM] for i in range(len(tail) - GRAM + 1))
        found = {gram for i in range(len(head) - GRAM + 1) if (gram := head[i : i + GRAM]) in wanted}
        return sum(wanted[gram] for gram in found) / max(wanted.total(), 1)

    def samples(self, model: Any, n: int = 5) -> list[tuple[str, str, str]]:
        """Continuations of held-out prompts: (the prompt, how the text goes on, how the model goes on).

        Drawn at a temperature below 1: bolder than saying the likeliest character each time, which soon repeats itself.
        """
        prompt = max(1, min(48, self.context // 2))
        length = min(len(self.tail) - prompt, 160)
        last = len(self.tail) - prompt - length
        tail = self.text[self.cut :]
        starts = [min(last, 1 + tail.find(" ", at)) for at in np.linspace(0, last, n).astype(int)]  # where words begin
        rows = self.tail[np.array(starts)[:, None] + np.arange(prompt + length)]
        said = generate(
            model, rows[:, :prompt], self.tokenizer, max_new=length, slide=True, temperature=TEMPERATURE, seed=2017
        )
        text = self.tokenizer.decode
        return [(text(row[:prompt]), text(row[prompt:]), str(new.text)) for row, new in zip(rows, said)]

    def describe(self) -> str:
        return (
            f"text: say the next character of {self.file}, from up to {self.context} before it.\n{len(self.text):,} "
            f"characters, {len(self.tokenizer.symbols)} different ones; the last tenth is held out."
        )

    def next_steps(self, directory: str) -> list[str]:
        return [
            f'minitx generate {directory} "{prompt_from(self.text[self.cut :])}"',
            f"minitx train text --file {self.file} --set layers=4 context=128     (a larger model)",
            f"minitx train text --file {self.file} --set dropout=0.3              (if held-out loss rises again)",
        ]


def prompt_from(text: str) -> str:
    """A few words that any shell takes between double quotes."""
    words = (word for word in text[:2000].split() if word.isalnum())
    return " ".join(islice(words, 3)) or text.strip()[:1]


MODEL = TransformerConfig.gpt2(layers=2, d_model=128, heads=4, dropout=0.1).to_dict()
TRAINING = {"steps": 2000, "batch_size": 32, "lr": 3e-3, "warmup": 100, "weight_decay": 0.1}
