"""A request from its prompts to its answers: what `generate` and `stream` do, with all their options."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from minitx import masks
from minitx.data.batch import pad
from minitx.data.tokenizer import BOS, EOS
from minitx.generation.answers import Answer, Answers, failed, of_hypothesis, of_row
from minitx.generation.beam import Beam, Search, search
from minitx.generation.decode import Row, decode
from minitx.generation.filters import whole
from minitx.generation.mode import evaluation
from minitx.generation.prefix import PrefixCache
from minitx.generation.request import Prompt, is_single, read
from minitx.generation.sampling import Sampling
from minitx.generation.session import Session
from minitx.generation.stopping import Stops, eos_ids
from minitx.generation.streaming import Written
from minitx.generation.timings import Timings
from minitx.generation.uncached import Sliding, Uncached, why_not_cached
from minitx.settings import no_grad
from minitx.tensor import Array


class Job:
    """A request and its state. `run()` does it and yields (place of the prompt, piece of text) on the way; then
    `answers()`.

    max_new         at most so many ids a row; None: as many as the model has positions for
    sampling        any field of `Sampling`: temperature, top_k, top_p, min_p, repetition_penalty, banned, filters, seed
    beam            None, or how many hypotheses beam search keeps; then length_penalty (see beam.py)
    copies          so many answers to each prompt: drawn, or the best of a beam
    stop            texts that end a row; they are not part of its text
    eos, bos        the id (or ids) that ends a row, None for none; the id with which a target begins
    numbers         of the prompts, 0, 1, ... if None: with the seed these fix a row's random numbers
    batch           so many rows at a time
    cache           False: everything is computed anew at every step (uncached.py); None: only where a model needs that
    cache_dtype     None: keys and values are kept as the model computes; "int8": in a quarter of the bytes of float32
    slide           a decoder may write more than it has positions for, and then sees the latest max_length ids
    prefixes        where a decoder finds how a prompt begins, if that `tenant` has asked so before (prefix.py)
    tenant          one name, or one for each prompt
    """

    def __init__(
        self,
        model: Any,
        prompts: Any,
        tokenizer: Any = None,
        *,
        max_new: int | None = None,
        beam: int | None = None,
        length_penalty: float = 0.0,
        copies: int = 1,
        stop: str | Iterable[str] = (),
        eos: int | Iterable[int] | None = EOS,
        bos: int = BOS,
        numbers: Sequence[int] | None = None,
        batch: int = 64,
        cache: bool | None = None,
        cache_dtype: str | None = None,
        slide: bool = False,
        prefixes: PrefixCache | None = None,
        tenant: str | Sequence[str] | None = None,
        **sampling: Any,
    ) -> None:
        if model.config.architecture not in ("decoder", "encoder-decoder") or model.config.head != "language-model":
            raise ValueError(f"this model says no symbols: it is an {model.config.architecture} with "
                             f"head {model.config.head!r}")  # fmt: skip
        self.model, self.tokenizer = model, tokenizer
        self.max_new = None if max_new is None else whole(max_new, "max_new", 1)
        self.copies, self.batch = whole(copies, "copies", 1), whole(batch, "batch", 1)
        self.sampling = Sampling(**sampling)
        self.beam = None if beam is None else Beam(beam, length_penalty, tuple(self.sampling.constraints))
        self.stop = (stop,) if isinstance(stop, str) else tuple(stop)
        self.eos, self.bos = eos_ids(eos), bos
        unfit = why_not_cached(model)
        if cache and unfit is not None:
            raise ValueError(f"this model cannot be cached, {unfit}: generate with cache=False")
        self.cache, self.cache_dtype = unfit is None if cache is None else cache, cache_dtype
        self.decoder = model.config.architecture == "decoder"
        self.slide = slide and self.decoder
        self._check(length_penalty)
        prompts = prompts if isinstance(prompts, str | np.ndarray) else list(prompts)
        self.single = is_single(prompts)
        prompts = [prompts] if self.single else list(prompts)
        numbers = range(len(prompts)) if numbers is None else [whole(n, "a prompt's number", 0) for n in numbers]
        if len(numbers) != len(prompts):
            raise ValueError(f"numbers are one for each of the {len(prompts)} prompts, not {len(numbers)}")
        self.prefixes = prefixes
        self.tenants = [tenant] * len(prompts) if tenant is None or isinstance(tenant, str) else list(tenant)
        if len(self.tenants) != len(prompts):
            raise ValueError(f"tenant is one name, or one for each of the {len(prompts)} prompts")
        if prefixes is not None and not (self.decoder and self.cache):
            raise ValueError("prefixes are shared between the prompts of decoders that have a cache")
        self.prompts = read(model, tokenizer, prompts, numbers)
        self.timings = Timings()
        self.found: dict[int, list[Answer]] = {}  # by the prompt's place

    def _check(self, length_penalty: float) -> None:
        Stops(self.stop)
        if self.stop and (self.tokenizer is None or self.beam is not None):
            raise ValueError("stop sequences are text, of rows that are written one id after the other: give the "
                             "tokenizer, and no beam")  # fmt: skip
        if self.beam is None and length_penalty:
            raise ValueError("length_penalty is of beam search: give beam=4, say")
        if self.beam is not None and self.sampling.draws:
            raise ValueError("beam search looks for the best and draws nothing: no temperature, top_k, top_p, min_p")
        if self.beam is not None and self.copies > self.beam.width:
            raise ValueError(f"a beam of {self.beam.width} has no {self.copies} best answers: give a wider one")
        if self.beam is None and self.copies > 1 and not self.sampling.draws:
            raise ValueError(f"{self.copies} greedy answers to one prompt are all the same: give a temperature or beam")
        if self.cache_dtype is not None and not self.cache:
            raise ValueError("cache_dtype is of a cache, and this model generates without one")

    # ------------------------------------------------------------------ running

    @no_grad
    def run(self) -> Iterator[tuple[int, str]]:
        sound = [i for i, prompt in enumerate(self.prompts) if prompt.error is None]
        wide = self.copies if self.beam is None else self.beam.width
        each = max(1, self.batch // wide)
        with evaluation(self.model):
            for at in range(0, len(sound), each):
                yield from self._batch(sound[at : at + each])

    def _batch(self, places: list[int]) -> Iterator[tuple[int, str]]:
        prompts = [self.prompts[i] for i in places]
        ids, lengths = pad([prompt.ids for prompt in prompts])
        with self.timings.prefill(int(lengths.sum()) + (0 if self.decoder else len(prompts))):
            session, logits = self._begin(ids, lengths, [self.tenants[i] for i in places])
        starts = [prompt.ids if self.decoder else np.array([self.bos]) for prompt in prompts]
        if self.beam is not None:
            searches = [Search(self.beam, start, *self._room(start), self.copies) for start in starts]
            search(session, logits, searches, self.eos, self.timings)
            self.found |= {i: self._of_search(s, self.prompts[i]) for i, s in zip(places, searches)}
            return
        rows = [self._row(i, start, k) for i, start in zip(places, starts) for k in range(self.copies)]
        if self.copies > 1:
            forks = np.repeat(np.arange(len(prompts)), self.copies)
            session.reorder(forks)
            logits = logits[forks]
        for row, piece in decode(session, logits, rows, self.sampling, self.eos, self.timings):
            yield row.place, piece
        for n, i in enumerate(places):
            mine = rows[n * self.copies : (n + 1) * self.copies]
            self.found[i] = [of_row(row, self.prompts[i]) for row in mine]

    def _begin(self, ids: Array, lengths: Array, tenants: list[Any]) -> tuple[Any, Array]:
        begin = partial(Session, cache_dtype=self.cache_dtype) if self.cache else Uncached
        if self.decoder:
            shared: Any = {} if self.prefixes is None else {"prefixes": self.prefixes, "tenants": tenants}
            session = Sliding(begin(self.model), self.model) if self.slide else begin(self.model)
            return session, session.prefill(ids, lengths, **shared)
        mask = masks.padding(lengths)
        session = begin(self.model, memory=self.model.encode(ids, mask=mask), memory_mask=mask)
        return session, session.prefill(np.full((len(ids), 1), self.bos))

    def _room(self, start: Array) -> tuple[int, str]:
        """How many ids a row may say, and what is to be said of one that has said them."""
        limit: int = self.model.config.max_length
        if self.slide:
            return self.max_new or limit, "length"
        room = limit - len(start) + 1  # what is said last is not read any more
        if self.max_new is None or self.max_new > room:
            return room, "positions"
        return self.max_new, "length"

    def _row(self, place: int, start: Array, copy: int) -> Row:
        written = None if self.tokenizer is None else Written(self.tokenizer, Stops(self.stop))
        rng = self.sampling.generator(self.prompts[place].number, copy)
        return Row(place, start, *self._room(start), rng, written)

    # ------------------------------------------------------------------ answers

    def answers(self) -> Answers:
        out: list[Answer] = []
        for i, prompt in enumerate(self.prompts):
            if prompt.error is not None:
                out += [failed(prompt.error, prompt, self.tokenizer)] * self.copies
            else:
                out += self.found[i]
        if self.single:
            for answer in out:
                if answer.error is not None:
                    raise answer.error
        return Answers(out, self.timings)

    def _of_search(self, found: Search, prompt: Prompt) -> list[Answer]:
        done = [] if found.error is not None else [of_hypothesis(h, prompt, self.tokenizer) for h in found.done]
        none = found.error or ValueError(f"there are no more than {len(done)} answers that the filters allow")
        return done + [failed(none, prompt, self.tokenizer)] * (self.copies - len(done))
