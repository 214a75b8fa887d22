"""A decoder of one block by hand, from ids to the loss and back: the hunts are this file, each with one fault in it."""
from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Rng
from minitx.op import Array

# ---------------------------------------------------------------------- the file
# A decoder of one block. Everything returns its value and its backward. Run this file, and watch it train.

VOCAB, LENGTH, WIDTH, HEADS, KV_HEADS, HEAD, INNER, IGNORED = 7, 5, 6, 4, 2, 4, 9, -100


def embedding(ids: Array, E: Array, P: Array) -> Any:
    """Rows of the table E, plus the positions' rows of P: (B, T, d)."""

    def backward(dy: Array) -> Any:
        dE = np.zeros(E.shape)
        np.add.at(dE, ids, dy)
        return dE, dy.sum(0)

    return E[ids] + P, backward


def layer_norm(x: Array, gain: Array, bias: Array) -> Any:
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + 1e-5)
    xhat = c * r

    def backward(dy: Array) -> Any:
        dxhat = dy * gain
        dx = dxhat - dxhat.mean(-1, keepdims=True)
        dx = dx - xhat * (dxhat * xhat).mean(-1, keepdims=True)
        return dx * r, (dy * xhat).sum((0, 1)), dy.sum((0, 1))

    return xhat * gain + bias, backward


def linear(x: Array, W: Array) -> Any:
    def backward(dy: Array) -> Any:
        return dy @ W, np.einsum("bto,bti->oi", dy, x)

    return x @ W.T, backward


def split(x: Array, heads: int) -> Array:
    """(B, T, heads * HEAD) → (B, heads, T, HEAD)"""
    B, T, _ = x.shape
    return x.reshape(B, T, heads, HEAD).swapaxes(1, 2)


def merge(x: Array) -> Array:
    B, heads, T, _ = x.shape
    return x.swapaxes(1, 2).reshape(B, T, heads * HEAD)


def attention(q: Array, k: Array, v: Array) -> Any:
    """Causal; HEADS query heads share KV_HEADS heads of keys and values."""
    group = HEADS // KV_HEADS
    Q = split(q, HEADS)
    K, V = (np.repeat(split(a, KV_HEADS), group, axis=1) for a in (k, v))  # every query head has its copy
    T = Q.shape[2]
    s = Q @ K.swapaxes(2, 3) / math.sqrt(HEAD)
    s = np.where(np.tri(T, T, dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)

    def shared(d: Array) -> Array:
        """The copies' gradients, back in the head that they were copied from."""
        B, _, T, _ = d.shape
        return merge(d.reshape(B, KV_HEADS, group, T, HEAD).sum(2))

    def backward(dy: Array) -> Any:
        do = split(dy, HEADS)
        dV = w.swapaxes(2, 3) @ do
        dw = do @ V.swapaxes(2, 3)
        ds = w * (dw - (dw * w).sum(-1, keepdims=True)) / math.sqrt(HEAD)
        return merge(ds @ K), shared(ds.swapaxes(2, 3) @ Q), shared(dV)

    return merge(w @ V), backward


def tanh(x: Array) -> Any:
    y = np.tanh(x)
    return y, lambda dy: dy * (1 - y * y)


def cross_entropy(logits: Array, targets: Array) -> Any:
    """The mean over the targets that are not ignored."""
    counted = targets != IGNORED
    count = counted.sum()
    c = logits - logits.max(-1, keepdims=True)
    log_p = c - np.log(np.exp(c).sum(-1, keepdims=True))
    onehot = np.arange(VOCAB) == targets[..., None]
    loss = -(log_p * onehot).sum() / count

    def backward(dloss: Any) -> Any:
        dlogits = (np.exp(log_p) - onehot) * counted[..., None]
        return dlogits * dloss / count

    return loss, backward


def model(
    ids: Array, targets: Array, E: Array, P: Array, g1: Array, b1: Array, w_q: Array, w_k: Array, w_v: Array,
    w_o: Array, g2: Array, b2: Array, w1: Array, w2: Array,
) -> Any:  # fmt: skip
    """The loss, and a backward that gives the gradients of all weights in this order."""
    x, embedding_back = embedding(ids, E, P)
    n, norm1_back = layer_norm(x, g1, b1)
    q, q_back = linear(n, w_q)
    k, k_back = linear(n, w_k)
    v, v_back = linear(n, w_v)
    a, attention_back = attention(q, k, v)
    o, o_back = linear(a, w_o)
    h = x + o
    m, norm2_back = layer_norm(h, g2, b2)
    u, inner_back = linear(m, w1)
    t, tanh_back = tanh(u)
    f, outer_back = linear(t, w2)
    z = h + f
    logits, head_back = linear(z, E)
    y, loss_back = cross_entropy(logits, targets)

    def backward(dy: Any) -> Any:
        dz, dE = head_back(loss_back(dy))
        df = dz
        dt, dw2 = outer_back(df)
        dm, dw1 = inner_back(tanh_back(dt))
        dh, dg2, db2 = norm2_back(dm)
        dh = dh + dz
        da, dw_o = o_back(dh)
        dq, dk, dv = attention_back(da)
        dn, dw_q = q_back(dq)
        dn_k, dw_k = k_back(dk)
        dn_v, dw_v = v_back(dv)
        dx, dg1, db1 = norm1_back(dn + dn_k + dn_v)
        dE_read, dP = embedding_back(dx + dh)
        return dE + dE_read, dP, dg1, db1, dw_q, dw_k, dw_v, dw_o, dg2, db2, dw1, dw2

    return y, backward


def make_batch(tokens: Array, lengths: Array) -> tuple[Array, Array]:
    """Texts (B, LENGTH + 1), of which the first `lengths` tokens are real: what goes in, and what is to come out."""
    ids = tokens[:, :-1]
    targets = tokens[:, 1:]
    padding = np.arange(1, LENGTH + 1) >= lengths[:, None]
    return ids, np.where(padding, IGNORED, targets)


def weights(rng: Any) -> dict[str, Any]:
    shapes = {
        "E": (VOCAB, WIDTH), "P": (LENGTH, WIDTH), "g1": (WIDTH,), "b1": (WIDTH,), "w_q": (HEADS * HEAD, WIDTH),
        "w_k": (KV_HEADS * HEAD, WIDTH), "w_v": (KV_HEADS * HEAD, WIDTH), "w_o": (WIDTH, HEADS * HEAD),
        "g2": (WIDTH,), "b2": (WIDTH,), "w1": (INNER, WIDTH), "w2": (WIDTH, INNER),
    }  # fmt: skip
    made = {name: rng.standard_normal(shape) * 0.3 for name, shape in shapes.items()}
    return made | {"g1": 1 + made["g1"] / 2, "g2": 1 + made["g2"] / 2}


def train(draw: Any, steps: int = 400, rate: float = 0.05) -> list[float]:
    """Gradient descent with momentum on fresh batches; the losses."""
    rng = np.random.default_rng(0)
    w = weights(rng)
    speed = {name: np.zeros(p.shape) for name, p in w.items()}
    losses = []
    for _ in range(steps):
        loss, backward = model(*make_batch(*draw(rng)), *w.values())
        losses.append(float(loss))
        for name, d in zip(w, backward(1.0)):
            speed[name] = 0.9 * speed[name] + d
            w[name] = w[name] - rate * speed[name]
    return losses


def rule(rng: Any) -> tuple[Array, Array]:
    """Texts with something to learn: every token but the first follows from the one before."""
    tokens = [rng.integers(0, VOCAB, 16)]
    for _ in range(LENGTH):
        tokens.append((3 * tokens[-1] + 1) % VOCAB)
    return np.stack(tokens, 1), rng.integers(2, LENGTH + 2, 16)


def noise(rng: Any) -> tuple[Array, Array]:
    """Texts with nothing to learn: nobody can get below ln VOCAB, unless the answers leak."""
    return rng.integers(0, VOCAB, (16, LENGTH + 1)), np.full(16, LENGTH + 1)


if __name__ == "__main__":
    for name, draw in (("a rule", rule), ("noise", noise)):
        losses = train(draw)
        shown = "  ".join(f"{np.mean(losses[i : i + 40]):.3f}" for i in range(0, len(losses), 40))
        print(f"{name:7} ln V = {math.log(VOCAB):.3f}   loss: {shown}")

# ---------------------------------------------------------------------- how a hunt is made of it


def hunted(*faults: tuple[str, str]) -> str:
    """The file above with pieces (right, wrong) of it exchanged, and without annotations: what a hunter gets."""
    text = Path(__file__).read_text("utf-8").split("# " + "-" * 70)[1].partition("\n")[2]
    for right, wrong in faults:
        if text.count(right) != 1:
            raise ValueError(f"a fault is planted at one place, and {right!r} stands at {text.count(right)}")
        text = text.replace(right, wrong)
    text = re.sub(r"(\w): (?:Array|Any|int|float)\b", r"\1", text)
    text = re.sub(r" -> (?:Any|Array|tuple\[Array, Array\]|dict\[str, Any\]|list\[float\]):", ":", text)
    return f"import math\n\nimport numpy as np\n\n{text.strip()}\n".replace("  # fmt: skip", "")


WEIGHTS = ("E", "P", "g1", "b1", "w_q", "w_k", "w_v", "w_o", "g2", "b2", "w1", "w2")

MODEL: dict[str, Any] = {
    "part": 2,
    "minutes": 30,
    "function": "model",
    "signature": ", ".join(("ids", "targets", *WEIGHTS)),
    "gradients": WEIGHTS,
    "solution": model,
    "mended": hunted(),
    "numbers": lambda ids, targets, *weights: {"N/(B T)": float((targets != IGNORED).mean())},
    "shapes": {
        "ids, targets": "(B, T)", "E": "(V, d)", "P": "(T, d)",
        "w_q": "(H * d_h, d)", "w_k, w_v": "(H_kv * d_h, d)", "w_o": "(d, H * d_h)", "w1": "(d_ff, d)",
        "w2": "(d, d_ff)", "y": "()",
    },
}  # fmt: skip


def arguments(rng: Rng) -> Arguments:
    """Every token's row is read more than once, a target is ignored, and no two sizes that matter are equal."""
    tokens = rng.integers(0, VOCAB, (3, LENGTH + 1))
    tokens[:, 2] = tokens[:, 0]
    ids, targets = make_batch(tokens, np.array([LENGTH + 1, LENGTH - 1, LENGTH]))
    return {"ids": ids, "targets": targets, **weights(rng)}
