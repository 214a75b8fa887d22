"""Byte-level byte-pair encoding: text in pieces that are frequent, and no text that it cannot write.

    id      0 1 2                   3 ... 258            259 ...
    symbol  <pad> <bos> <eos>       the 256 bytes        byte pairs in the order in which they were learned

A text is UTF-8, and every byte has an id: nothing is unknown. Merging never crosses the border of a word, so that "dog"
before a comma and "dog" before a full stop do not become two patterns. (How pairs are learned: merges.py.)
"""
from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from minitx.data.merges import BYTES, Pair, apply_merges, learn_merges
from minitx.data.tokenizer import SPECIAL
from minitx.tensor import Array

# Where words begin and end: GPT-2's rule (Radford et al. 2019, section 2.2), as far as `re` knows classes of
# characters: endings after an apostrophe; letters, digits or signs, each with the space before them; white space, but
# for its last character before a word. Every character is in exactly one piece.
SPLIT = "gpt2"
PIECES = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
EOS = SPECIAL[2]
CACHED = 1 << 16  # words


class BytePairTokenizer:
    """Learn with `BytePairTokenizer.train(text, vocab_size)`, or make one of merges that were learned elsewhere.

        >>> tokenizer = BytePairTokenizer.train("low lower lowest, slow slower", vocab_size=264)
        >>> tokenizer.encode("slowly")
        array([118, 260, 111, 124])
        >>> [tokenizer.token(i) for i in tokenizer.encode("slowly")]
        [b's', b'low', b'l', b'y']
        >>> tokenizer.decode([118, 260, 111, 124])
        'slowly'

    merges   pairs of symbols, the one that was learned first in front: numbers under 256 are bytes, 256 + r is what
             merge r made
    special  strings with an id of their own, 0, 1, ..., which are never split and never part of a pair. (Data with
             batches for a model wants <pad>, <bos>, <eos> as the first three.)
    """

    def __init__(self, merges: Iterable[Sequence[int]], special: Sequence[str] = SPECIAL) -> None:
        self.merges: list[Pair] = [(int(a), int(b)) for a, b in merges]
        self.special = tuple(special)
        if len(set(self.special)) != len(self.special) or not all(self.special):
            raise ValueError(f"special tokens are different strings, none empty, not {self.special}")
        self.symbols = [bytes([b]) for b in range(BYTES)]  # what each stands for
        for r, (a, b) in enumerate(self.merges):
            if not (0 <= a < len(self.symbols) and 0 <= b < len(self.symbols)):
                raise ValueError(f"merge {r} is of symbols that exist before it, 0 to {BYTES + r - 1}, not {a} and {b}")
            self.symbols.append(self.symbols[a] + self.symbols[b])
        self._rank = {pair: r for r, pair in enumerate(self.merges)}
        if len(self._rank) != len(self.merges):
            raise ValueError("every pair is merged once, and one stands twice among the merges")
        longest_first = sorted(self.special, key=len, reverse=True)  # "<eos>" is not to be found inside "<eos>>"
        self._special = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if self.special else None
        self._known: dict[str, list[int]] = {}  # words that were encoded lately

    @classmethod
    def train(
        cls, texts: str | Iterable[str], vocab_size: int, special: Sequence[str] = SPECIAL, least: int = 2
    ) -> BytePairTokenizer:
        """A vocabulary of (at most) `vocab_size` ids: special ones, bytes, and pairs that occur `least` times or more.

        The same text gives the same merges on every machine.
        """
        plain = cls([], special)
        n = vocab_size - len(plain)
        if n < 0:
            raise ValueError(f"vocab_size is at least {len(plain)}, bytes and special ids, not {vocab_size}")
        count: Counter[str] = Counter()
        for text in [texts] if isinstance(texts, str) else texts:
            for part, is_special in plain._parts(text, True):
                if not is_special:
                    count.update(PIECES.findall(part))
        return cls(learn_merges(((word.encode(), c) for word, c in count.items()), n, least), special)

    def __len__(self) -> int:
        """The size of the vocabulary, special ids included."""
        return len(self.special) + len(self.symbols)

    # ------------------------------------------------------------------ text to ids

    def encode(self, text: str, special: bool = True) -> Array:
        """Text → ids (n,). With special=False (text from strangers) "<eos>" is five ordinary characters."""
        first = len(self.special)
        ids: list[int] = []
        for part, is_special in self._parts(text, special):
            if is_special:
                ids.append(self.special.index(part))
                continue
            for word in PIECES.findall(part):
                known = self._known.get(word)
                if known is None:
                    if len(self._known) >= CACHED:
                        self._known.clear()
                    known = self._known[word] = [first + s for s in apply_merges(word.encode(), self._rank)]
                ids += known
        return np.array(ids, np.int64)

    def _parts(self, text: str, special: bool) -> Iterator[tuple[str, bool]]:
        """The text cut at special tokens, and for each part whether it is one."""
        if not isinstance(text, str):
            raise TypeError(f"a text is a str, not {type(text).__name__}; bytes become one by .decode(\"utf-8\")")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"character {error.start + 1} is {text[error.start]!a}, half of a pair, which is not text; read files "
                'with encoding="utf-8"'
            ) from None
        if self._special is None or not special:
            yield text, False
            return
        for i, part in enumerate(self._special.split(text)):
            yield part, i % 2 == 1

    # ------------------------------------------------------------------ ids to text

    def token(self, i: int) -> bytes:
        """What an id stands for."""
        if not 0 <= i < len(self):
            raise IndexError(f"id {i} is outside the vocabulary of {len(self)} (0 to {len(self) - 1})")
        first = len(self.special)
        return self.special[i].encode() if i < first else self.symbols[i - first]

    def decode(self, ids: Iterable[int], whole: bool = False) -> str:
        """Ids → text, up to the first <eos> (with whole=True: all of it, special tokens by their names).

        Any ids can be decoded: bytes that make no character become U+FFFD, the replacement character.
        """
        stream = self.stream(whole)
        return "".join([*map(stream.push, ids), stream.finish()])

    def stream(self, whole: bool = False) -> TextStream:
        """For text that is still being written: `push(id)` gives what can be said by now."""
        return TextStream(self, whole)

    # ------------------------------------------------------------------ as plain data

    def to_dict(self) -> dict[str, Any]:
        merges = [list(pair) for pair in self.merges]
        return {"kind": "byte-pair", "split": SPLIT, "special": list(self.special), "merges": merges}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> BytePairTokenizer:
        if d.get("kind") != "byte-pair" or not isinstance(d.get("merges"), list):
            raise ValueError(f"not a byte-pair vocabulary: kind {d.get('kind')!r}, keys {', '.join(map(str, d))}")
        if d.get("split") != SPLIT:
            raise ValueError(f"words are split by the rule {SPLIT!r} here, not {d.get('split')!r}: ids would differ")
        pairs, special = d["merges"], d.get("special")
        if not all(isinstance(p, list) and len(p) == 2 and all(isinstance(n, int) for n in p) for p in pairs):
            raise ValueError("merges are pairs of whole numbers, and some are not")
        if not isinstance(special, list) or not all(isinstance(s, str) for s in special):
            raise ValueError(f"special is a list of strings, not {special!r}")
        return cls(pairs, special)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BytePairTokenizer) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((tuple(self.merges), self.special))

    def __repr__(self) -> str:
        return f"BytePairTokenizer({len(self)} ids: {len(self.special)} special, {len(self.merges)} merges)"


class TextStream:
    """Decodes id by id. A character that takes several ids is held back until its last one, never shown in pieces."""

    def __init__(self, tokenizer: BytePairTokenizer, whole: bool) -> None:
        self.tokenizer, self.whole = tokenizer, whole
        self.ended = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, i: int) -> str:
        """The text that this id completes: often empty, sometimes several characters; nothing more after <eos>."""
        i = int(i)
        token = self.tokenizer.token(i)
        special = self.tokenizer.special
        self.ended = self.ended or (not self.whole and i < len(special) and special[i] == EOS)
        return "" if self.ended else self._utf8.decode(token)

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        return self._utf8.decode(b"", final=True)
