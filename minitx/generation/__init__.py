"""Generation: from a trained model to new symbols. `generate` has everything; `greedy` is its smallest loop."""

from minitx.generation.answers import Answer, Answers
from minitx.generation.generate import answer, generate, stream
from minitx.generation.greedy import greedy
from minitx.generation.mode import evaluating
from minitx.generation.prefix import PrefixCache
from minitx.generation.sampling import Sampling
from minitx.generation.session import Session
from minitx.generation.timings import Timings
from minitx.generation.uncached import Uncached

__all__ = [
    "generate", "stream", "Answer", "Answers", "Timings", "Sampling", "greedy", "answer", "evaluating", "Session",
    "PrefixCache", "Uncached",
]  # fmt: skip
