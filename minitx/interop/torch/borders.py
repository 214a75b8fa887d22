"""Masks at the border: PyTorch's MultiheadAttention means by True that a query may NOT attend; minitx that it may.

What is boolean there becomes a mask here, what is float (added to the scores, -inf hides) a bias.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minitx.op import Array
from minitx.ops import reshape
from minitx.tensor import Tensor


class Seen(NamedTuple):
    """mask= and bias= of minitx's attention."""

    mask: Array | None
    bias: Any


def seen(
    attn_mask: Any,
    key_padding_mask: Any,
    is_causal: bool | None,
    sizes: tuple[int, int, int, int],
    called: tuple[str, str, str] = ("attn_mask", "key_padding_mask", "is_causal"),
) -> Seen:
    """PyTorch's two masks, each boolean or float, and its hint, for B, H, T, S = sizes; `called` is for messages.

    attn_mask is (T, S) or (B * H, T, S), key_padding_mask (B, S). is_causal is a hint about attn_mask: that it is the
    square causal mask. PyTorch uses the one or the other, whichever is faster; a hint that is wrong is an error here.
    """
    B, H, T, S = sizes
    attn, padding = (_plain(m, name) for m, name in ((attn_mask, called[0]), (key_padding_mask, called[1])))
    if is_causal:
        _check_hint(attn, called, T, S)
    mask: Array | None = None
    bias: Any = None
    if attn is not None:
        if attn.shape not in ((T, S), (B * H, T, S)):
            raise ValueError(f"{called[0]} is (T, S), {(T, S)}, or (B * H, T, S), {(B * H, T, S)}, not {attn.shape}")
        if len(attn.shape) == 3:
            attn = reshape(attn, (B, H, T, S)) if isinstance(attn, Tensor) else attn.reshape(B, H, T, S)
        if _is_boolean(attn):
            mask = ~attn
        else:
            bias = attn
    if padding is not None:
        if padding.shape != (B, S):
            raise ValueError(f"{called[1]} is (B, S), {(B, S)}, one line of keys per row, not {padding.shape}")
        if _is_boolean(padding):
            real = ~padding[:, None, None, :]  # (B, 1, 1, S)
            mask = real if mask is None else mask & real
        else:
            line = reshape(padding, (B, 1, 1, S)) if isinstance(padding, Tensor) else padding[:, None, None, :]
            bias = line if bias is None else line + bias
    return Seen(mask, bias)


def _plain(mask: Any, name: str) -> Any:
    """A boolean array, an array of floats, or a Tensor of floats (which then gets its gradient)."""
    if mask is None or isinstance(mask, Tensor):
        return mask
    array = np.asarray(mask.detach().cpu().numpy() if hasattr(mask, "detach") else mask)
    if array.dtype != np.bool_ and array.dtype.kind != "f":
        raise TypeError(f"{name} is boolean, True = may NOT attend, or float, added to the scores; not {array.dtype}")
    return array


def _is_boolean(mask: Any) -> bool:
    return bool(mask.dtype == np.bool_)


def _check_hint(attn: Any, called: tuple[str, str, str], T: int, S: int) -> None:
    if attn is None:
        raise ValueError(
            f"{called[2]}=True is a hint that {called[0]} is the causal mask, and there is none: give it, "
            "nn.Transformer.generate_square_subsequent_mask(T)"
        )
    values = attn.numpy() if isinstance(attn, Tensor) else attn
    ahead = np.arange(S) > np.arange(T)[:, None]  # (T, S)
    causal = ahead if _is_boolean(values) else np.where(ahead, -np.inf, 0)
    if values.shape[-2:] != (T, S) or not (values == causal).all():
        raise ValueError(f"{called[2]}=True is a hint that {called[0]} is the causal mask, and it is another one")
