"""Presets in a size that a check has done in a second."""
from __future__ import annotations

from typing import Any

from minitx.models import TransformerConfig
from minitx.models.presets import PRESETS

SIZES = {"layers": 2, "d_model": 16, "heads": 4, "vocab_size": 23, "max_length": 16, "dropout": 0.0}
IMAGES = {"vocab_size": 0, "patch_dim": 5, "classes": 11}


def small(name: str, **changes: Any) -> TransformerConfig:
    """What the preset says of everything but sizes is kept; no dropout."""
    sizes = {**SIZES, **(IMAGES if PRESETS.get(name, {}).get("patch_dim") else {}), **changes}
    config: TransformerConfig = getattr(TransformerConfig, name)(**sizes)
    return config
