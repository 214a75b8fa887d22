"""Generation: from a trained model to new symbols."""

from minitx.generation.answer import answer
from minitx.generation.greedy import evaluating, greedy

__all__ = ["greedy", "evaluating", "answer"]
