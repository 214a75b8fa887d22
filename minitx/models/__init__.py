"""Whole models from a configuration."""

from minitx.models.card import Card
from minitx.models.config import TransformerConfig
from minitx.models.transformer import Output, Transformer

__all__ = ["TransformerConfig", "Transformer", "Output", "Card"]
