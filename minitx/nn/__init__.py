"""Layers: Modules that hold parameters and apply ops."""

from minitx.nn.attention import MultiHeadAttention, merge_heads, split_heads
from minitx.nn.blocks import DecoderBlock, EncoderBlock, PostNorm, PreNorm, Residual
from minitx.nn.dropout import Dropout
from minitx.nn.embedding import Embedding
from minitx.nn.feedforward import FeedForward
from minitx.nn.linear import Linear
from minitx.nn.module import Module, Parameter
from minitx.nn.normalization import LayerNorm
from minitx.nn.positions import LearnedPositions, NoPositions, SinusoidalPositions, sinusoidal

__all__ = [
    "Module", "Parameter",
    "Linear", "Embedding", "LayerNorm", "Dropout",
    "sinusoidal", "SinusoidalPositions", "LearnedPositions", "NoPositions",
    "MultiHeadAttention", "split_heads", "merge_heads", "FeedForward",
    "Residual", "PreNorm", "PostNorm", "EncoderBlock", "DecoderBlock",
]  # fmt: skip
