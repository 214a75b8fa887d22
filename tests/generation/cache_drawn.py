"""Models and batches for the tests of the cache: every architecture, position method, window and number of heads."""
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import strategies as st

from minitx.generation.cache_slots import Int8Slots, Slots
from minitx.models import Transformer, TransformerConfig

V = 11
SCALINGS = [
    None,
    {"type": "linear", "factor": 2.0},
    {"type": "yarn", "factor": 4.0, "original_length": 4},
    {"type": "llama3", "factor": 8.0, "original_length": 8},
    {"type": "dynamic", "factor": 2.0, "original_length": 4, "length": 40},
]


def model(dtype=np.float64, seed=0, **fields):
    config = {"layers": 2, "d_model": 8, "heads": 4, "vocab_size": V, "dropout": 0.0, "max_length": 40, **fields}
    made = Transformer(TransformerConfig(**{"architecture": "decoder", **config}), rng=np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    for p in made.parameters():  # biases and gains that matter
        p.data += 0.2 * rng.standard_normal(p.shape)
    return made.astype(dtype).eval()


@st.composite
def fields(draw, architectures=("decoder", "encoder-decoder")):
    """Fields of a configuration that differ from those of `model`."""
    out = {"architecture": draw(st.sampled_from(architectures))}
    out["position"] = draw(st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "relative", "none"]))
    if out["position"] == "rotary":
        out["rope_scaling"] = draw(st.sampled_from(SCALINGS))
        out["rope_interleaved"] = draw(st.booleans())
    if out["position"] == "relative":
        out |= {"relative_buckets": 6, "relative_max_distance": 9}
    if out["architecture"] == "decoder":
        out["window"] = draw(st.sampled_from([None, 1, 2, 3, 5]))
        out["window_every"] = 1 if out["window"] is None else draw(st.sampled_from([1, 2]))
    out["kv_heads"] = draw(st.sampled_from([1, 2, 4]))
    out["value_dim"] = draw(st.sampled_from([None, 3]))
    out["qk_norm"] = draw(st.booleans())
    out["attention_softcap"] = draw(st.sampled_from([None, 2.0]))
    out["attention_kernel"] = draw(st.sampled_from(["textbook", "tiled"]))
    out["norm_placement"] = draw(st.sampled_from(["pre", "post", "both"]))
    out["norm"] = draw(st.sampled_from(["layer", "rms"]))
    out["activation"] = draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu"]))
    out["experts"] = draw(st.sampled_from([0, 0, 0, 3]))
    return out


@st.composite
def batches(draw, longest=13, rows=3):
    """ids (B, T) padded with ids, lengths (B,), and the side of the padding."""
    B = draw(st.integers(1, rows))
    lengths = np.array([draw(st.integers(1, longest)) for _ in range(B)])
    ids = np.random.default_rng(draw(st.integers(0, 9))).integers(0, V, (B, lengths.max()))
    return ids, lengths, draw(st.sampled_from(["right", "left"]))


@st.composite
def cuts(draw, total):
    """Whole numbers that sum to `total`."""
    parts = []
    while sum(parts) < total:
        parts.append(draw(st.integers(1, total - sum(parts))))
    return parts


def row(ids, lengths, side, b):
    """Row b alone, without its padding: (1, lengths[b])."""
    T = ids.shape[1]
    return ids[b : b + 1, : lengths[b]] if side == "right" else ids[b : b + 1, T - lengths[b] :]


@contextmanager
def poison():
    """Inside, slots hold NaN until they are written."""
    def poisoned(room):
        def filled(self, slots):
            before = self.x.shape[2]
            room(self, slots)
            if isinstance(self, Int8Slots):
                self.x[:, :, before:], self.scale[:, :, before:] = 127, np.nan
            else:
                self.x[:, :, before:] = np.nan

        return filled

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Slots, Int8Slots):
            patch.setattr(kind, "room", poisoned(kind.room))
        yield


def poison_behind(cache):
    """NaN in all slots behind the tokens of each row: what was there before going back, or before moving up."""
    for layer in cache.layers:
        for slots in layer.written:
            for b, n in enumerate(cache.lengths - layer.track.first):
                target = slots.scale if isinstance(slots, Int8Slots) else slots.x
                target[b, :, n:] = np.nan
