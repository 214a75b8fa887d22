"""Layers: Modules that hold parameters and apply ops."""

from minitx.nn.attention import MultiHeadAttention
from minitx.nn.blocks import BothNorm, DecoderBlock, EncoderBlock, PostNorm, PreNorm, Residual
from minitx.nn.dropout import Dropout
from minitx.nn.embedding import Embedding
from minitx.nn.feedforward import FeedForward
from minitx.nn.gated import GatedFeedForward
from minitx.nn.heads import ClassificationHead, MaskedLanguageModelHead, TokenLabellingHead
from minitx.nn.linear import Linear
from minitx.nn.mixture import Aux, ExpertLinear, MixtureOfExperts, Usage
from minitx.nn.module import Module, Parameter
from minitx.nn.normalization import LayerNorm, RMSNorm
from minitx.nn.patches import PatchEmbedding
from minitx.nn.pooling import pool, real_tokens
from minitx.nn.position_bias import AlibiBias, RelativeBias
from minitx.nn.positions import LearnedPositions, NoPositions, SinusoidalPositions, sinusoidal
from minitx.nn.rotary import Rotary
from minitx.nn.segment import SegmentEmbedding
from minitx.ops import merge_heads, split_heads

__all__ = [
    "Module", "Parameter",
    "Linear", "Embedding", "LayerNorm", "RMSNorm", "Dropout", "SegmentEmbedding", "PatchEmbedding",
    "sinusoidal", "SinusoidalPositions", "LearnedPositions", "NoPositions", "Rotary", "AlibiBias", "RelativeBias",
    "MultiHeadAttention", "split_heads", "merge_heads", "FeedForward", "GatedFeedForward",
    "MixtureOfExperts", "ExpertLinear", "Aux", "Usage",
    "Residual", "PreNorm", "PostNorm", "BothNorm", "EncoderBlock", "DecoderBlock",
    "pool", "real_tokens", "MaskedLanguageModelHead", "ClassificationHead", "TokenLabellingHead",
]  # fmt: skip
