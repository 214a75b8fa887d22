"""Generation: from a trained model to new symbols."""

from minitx.generation.answer import answer
from minitx.generation.greedy import drawn, evaluating, greedy, likeliest

__all__ = ["greedy", "likeliest", "drawn", "evaluating", "answer"]
