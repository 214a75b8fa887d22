"""`generate`: prompts in, answers out, each with its log-probabilities and the reason why it ended.

    >>> import numpy as np
    >>> from minitx.models import Transformer, TransformerConfig
    >>> config = TransformerConfig.gpt2(layers=1, d_model=8, heads=2, vocab_size=13, max_length=16)
    >>> model = Transformer(config, rng=np.random.default_rng(0))
    >>> answers = generate(model, [[3, 4, 5], [6], []], max_new=4, eos=None, temperature=0.8, top_k=5)
    >>> [(len(answer.ids), answer.finish) for answer in answers]
    [(4, 'length'), (4, 'length'), (0, 'error')]

What a row says does not depend on which others there are: not on their lengths, their ends, their errors.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minitx.generation.answers import Answers
from minitx.generation.job import Job


def generate(model: Any, prompts: Any, tokenizer: Any = None, **options: Any) -> Answers:
    """The answers to `prompts`, texts or ids. A prompt that fails has an `error` and leaves the others alone; a prompt
    that is given by itself, not in a list, raises it.

    All `options` are those of `Job`: max_new, temperature, top_k, top_p, min_p, repetition_penalty, banned, filters,
    seed, beam, length_penalty, stop, eos, copies, ...
    """
    job = Job(model, prompts, tokenizer, **options)
    for _ in job.run():
        pass
    return job.answers()


def stream(model: Any, prompt: Any, tokenizer: Any, **options: Any) -> Iterator[str]:
    """The text of one answer, piece by piece, each as soon as it is certain. Options as for `generate`.

    The model is in evaluation mode until the stream has ended or is closed.
    """
    job = Job(model, prompt, tokenizer, **options)
    if not job.single or job.copies != 1 or job.beam is not None or tokenizer is None:
        raise ValueError("a stream is the text of one prompt, not several, nor copies, nor a beam, and has a tokenizer")
    for _, piece in job.run():
        if piece:
            yield piece
    job.answers()  # raises what went wrong


def answer(model: Any, tokenizer: Any, texts: Sequence[str], max_new: int | None = None) -> list[str]:
    """Greedily from text to text: an encoder-decoder's target for each source; a decoder's continuation of each prompt
    (without the prompt), also beyond its positions. A text that cannot be answered raises.
    """
    answers = generate(model, list(texts), tokenizer, max_new=max_new, slide=True)
    for a in answers:
        if a.error is not None:
            raise a.error
    return [str(a.text) for a in answers]
