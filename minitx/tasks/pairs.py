"""pairs: translate your own `source TAB target` lines, character by character."""
from __future__ import annotations

import unicodedata

import numpy as np

from minitx.data.batch import Batch, encoder_decoder, pad
from minitx.data.files import read_pairs
from minitx.data.split import text_hash, text_is_held_out
from minitx.data.tokenizer import CharTokenizer
from minitx.models.config import TransformerConfig
from minitx.tasks.seq2seq import Example, Seq2SeqTask

HELD_OUT = 1000  # questions asked in one evaluation, at most


class PairsTask(Seq2SeqTask):
    """Pairs of texts from a file; a tenth of the sources is held out, by a hash of the source.

    All pairs of one source fall on the same side, and a held-out prediction is right if it is any of its targets. A
    pair that the file repeats counts once. A source that stands on both sides but for case, spaces or the way accents
    are coded ("Go!" held out, "go!" in training) would be a question whose answer was seen: such held-out pairs are
    dropped, and counted.
    """

    name = "pairs"

    def __init__(self, file: str) -> None:
        self.file = str(file)
        self.options = {"file": self.file}
        lines: dict[tuple[str, str], int] = {}  # each pair once, with the line where it first stands
        read = 0
        for number, source, target in read_pairs(file):
            lines.setdefault((source, target), number)
            read += 1
        self.repeated = read - len(lines)
        held = _held_out_sources({source for source, _ in lines}, self.file)
        seen = {_folded(source) for source, _ in lines if source not in held}
        self.train = [pair for pair in lines if pair[0] not in held]
        asked = [pair for pair in lines if pair[0] in held and _folded(pair[0]) not in seen]
        self.dropped = len(lines) - len(self.train) - len(asked)
        if not asked:
            raise ValueError(
                f"{file}: every held-out source also stands in training, but for case or spaces; give more sources"
            )
        self.tokenizer = CharTokenizer.of("".join(source + target for source, target in lines))
        encode = self.tokenizer.encode
        self._sources = [encode(source) for source, _ in self.train]
        self._targets = [encode(target) for _, target in self.train]
        answers: dict[str, list[str]] = {}
        for source, target in asked:
            answers.setdefault(source, []).append(target)
        self.asked = len(answers)
        order = sorted(answers, key=text_hash)  # the first so many are a fair choice, and always the same one
        self._examples = [Example(encode(source), [encode(target) for target in answers[source]]) for source in order]
        (longest, self._longest_line) = max((max(map(len, pair)), number) for pair, number in lines.items())
        self.positions = longest + 1
        lengths = [len(e.source) for e in self._examples]
        self._shortest, self._step = min(lengths), -(-(max(lengths) - min(lengths) + 1) // 12)
        self.model_defaults = MODEL
        mean = np.mean([len(target) for target in self._targets])
        size = 16 * int(np.clip(TARGETS / (16 * mean), 1, 4))  # 64 for words, 16 for long sentences
        self.training_defaults = {**TRAINING, "batch_size": size}

    def too_long(self, max_length: int) -> str:
        return (
            f"max_length {max_length} is too small: the longest text of {self.file} (line {self._longest_line}) has "
            f"{self.positions - 1} characters and needs {self.positions} positions; shorten it, or raise max_length"
        )

    def batch(self, rng: np.random.Generator, size: int) -> Batch:
        chosen = rng.integers(0, len(self.train), size)
        return encoder_decoder(*pad([self._sources[i] for i in chosen]), *pad([self._targets[i] for i in chosen]))

    def examples(self, size: int | None = None) -> list[Example]:
        return sorted(self._examples[: HELD_OUT if size is None else size], key=lambda e: len(e.source))

    def label(self, length: int) -> str:
        """At most twelve rows: lengths in steps."""
        low = self._shortest + (length - self._shortest) // self._step * self._step
        return str(low) if self._step == 1 else f"{low}-{low + self._step - 1}"

    def describe(self) -> str:
        text = (
            f"pairs: write the right-hand side of each line of {self.file}, given the left-hand side.\n"
            f"{len(self.train):,} pairs to learn from; {self.asked:,} sources are held out."
        )
        if self.repeated:
            text += f"\n{self.repeated:,} repeated lines count once."
        if self.dropped:
            text += f"\n{self.dropped:,} held-out pairs dropped: but for case or spaces, training has their source too."
        return text

    def next_steps(self, directory: str) -> list[str]:
        sources = [self.tokenizer.decode(e.source) for e in self._examples]
        plain = next((s for s in sources if s.replace(" ", "").isalnum()), sources[0].replace('"', ""))
        return [
            f'minitx generate {directory} "{plain}"',
            f"minitx train pairs --file {self.file} --set layers=3 d_model=192     (a larger model)",
            f"minitx train pairs --file {self.file} --set dropout=0.3              (if held-out loss rises again)",
        ]


def _held_out_sources(sources: set[str], file: str) -> set[str]:
    if len(sources) < 2:
        raise ValueError(f"{file} has only one source; to hold some out, give at least two (better: hundreds)")
    held = {source for source in sources if text_is_held_out(source)}
    if not held or len(held) == len(sources):
        held = {min(sources, key=text_hash)}  # a small file: one at least, and not all
    return held


def _folded(source: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", source).casefold().split())


MODEL = TransformerConfig.original(layers=2, d_model=128, heads=4, dropout=0.1).to_dict()
TRAINING = {"steps": 2000, "lr": 2e-3, "warmup": 200}
TARGETS = 1600  # characters to say, about, in a batch: what a step costs goes by them
