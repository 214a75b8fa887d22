"""A Transformer on one page: NumPy and nothing else, every gradient worked out by hand.

It is a small decoder like GPT-2. In ten seconds or so it learns to reverse digits: asked 3142> it answers 2413.
Each function returns its value y and its backward, which turns dy, the gradient of the loss with respect to y,
into the gradients of the arguments: dx, dW, ... A batch is one matrix with a row for each of its N = B T tokens;
only attention asks which rows form a sequence. (B sequences of T tokens; D features, in H heads of d = D / H.)
"""
import numpy as np

SYMBOLS, ASK, END, IGNORED = "0123456789>.", 10, 11, -100  # '>' asks, '.' ends; IGNORED: no target here
LONGEST, T, D, H, L, V = 10, 22, 32, 4, 2, 12             # digits in a question; L blocks; V symbols

def linear(x, W, b):
    def backward(dy):                                     # y = x Wᵀ + b
        return dy @ W, dy.T @ x, dy.sum(0)                # dx (N, in), dW (out, in), db (out)
    return x @ W.T + b, backward                          # (N, out)

def layer_norm(x, gain, bias, eps=1e-5):                  # every row: mean 0, variance 1; then gain and bias
    c = x - x.mean(1, keepdims=True)                      # (N, D)
    std = np.sqrt((c * c).mean(1, keepdims=True) + eps)   # (N, 1)
    n = c / std                                           # (N, D)
    def backward(dy):                                     # y = n * gain + bias
        dn = dy * gain
        dx = dn.copy()                                    # term 1: x itself
        dx -= dn.mean(1, keepdims=True)                   # term 2: x as a part of the mean
        dx -= n * (dn * n).mean(1, keepdims=True)         # term 3: x as a part of the standard deviation
        return dx / std, (dy * n).sum(0), dy.sum(0)       # dx (N, D), dgain (D), dbias (D)
    return n * gain + bias, backward

def gelu(x, k=(2 / np.pi) ** 0.5):                        # a soft switch: large x pass, those far below 0 do not
    t = np.tanh(k * (x + 0.044715 * x * x * x))           # between -1 and 1
    def backward(dy):                                     # y = x (1 + t) / 2
        dx = dy * (1 + t) / 2                             # term 1: x itself
        dx += dy * x / 2 * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x)  # term 2: x inside the tanh
        return dx
    return x * (1 + t) / 2, backward

def attention(qkv, B):
    """Each token gets a mean of the values v so far, weighted by how well their keys k answer its query q."""
    N, d = len(qkv), D // H
    q, k, v = qkv.reshape(B, N // B, 3, H, d).transpose(2, 0, 3, 1, 4)  # (B, H, T, d) each
    s = np.where(np.tri(N // B, dtype=bool), q @ k.mT / d**0.5, -np.inf)  # (B, H, T, T): no key from later
    e = np.exp(s - s.max(-1, keepdims=True))
    a = e / e.sum(-1, keepdims=True)                      # softmax: the weights in a row sum to 1
    def backward(dy):
        dy = dy.reshape(B, N // B, H, d).swapaxes(1, 2)   # (B, H, T, d)
        da, dv = dy @ v.mT, a.mT @ dy                     # (B, H, T, T), (B, H, T, d)
        ds = a * da                                       # term 1: a score raises its own weight
        ds -= a * ds.sum(-1, keepdims=True)               # term 2: and lowers all the weights of its row
        dqkv = np.stack([ds @ k / d**0.5, ds.mT @ q / d**0.5, dv])  # (3, B, H, T, d)
        return dqkv.transpose(1, 3, 0, 2, 4).reshape(N, 3 * D)
    return (a @ v).swapaxes(1, 2).reshape(N, D), backward  # (N, D): the heads side by side

def block(x, w, i, B):
    """Tokens tell each other what they know (attention), then each works on it alone (linear, gelu, linear)."""
    n, norm1_back = layer_norm(x, *w["norm1", i])
    qkv, qkv_back = linear(n, *w["qkv", i])               # (N, 3D)
    y, attention_back = attention(qkv, B)                 # (N, D)
    y, out_back = linear(y, *w["out", i])
    x = x + y
    n, norm2_back = layer_norm(x, *w["norm2", i])
    h, up_back = linear(n, *w["up", i])                   # (N, 4D)
    h, gelu_back = gelu(h)
    y, down_back = linear(h, *w["down", i])               # (N, D)
    def backward(dx, dw):
        dh, *dw["down", i] = down_back(dx)                # (N, 4D)
        dn, *dw["up", i] = up_back(gelu_back(dh))         # (N, D)
        dbranch, *dw["norm2", i] = norm2_back(dn)
        dx = dx + dbranch                                 # x went past the branch and into it
        dy, *dw["out", i] = out_back(dx)
        dn, *dw["qkv", i] = qkv_back(attention_back(dy))
        dbranch, *dw["norm1", i] = norm1_back(dn)
        return dx + dbranch
    return x + y, backward

def transformer(w, ids):                                  # ids (B, T) → logits (N, V): a score for every next symbol
    B, T = ids.shape
    E, P = w["embedding"]
    x = (E[ids] + P[:T]).reshape(B * T, D)                # (N, D): which symbol it is + where it stands
    backs = []
    for i in range(L):
        x, back = block(x, w, i, B)
        backs.append(back)
    n, norm_back = layer_norm(x, *w["norm"])
    logits, head_back = linear(n, *w["head"])             # (N, V)
    def backward(dlogits):
        dw = {}
        dn, *dw["head"] = head_back(dlogits)              # (N, D)
        dx, *dw["norm"] = norm_back(dn)
        for back in reversed(backs):
            dx = back(dx, dw)
        dE = (np.arange(V)[:, None] == ids.ravel()) @ dx  # (V, D): a symbol collects from wherever it stood
        dP = dx.reshape(B, T, D).sum(0)                   # (T, D): a place, from whatever stood there
        return dw | {"embedding": [dE, dP]}
    return logits, backward

def loss_and_gradients(w, ids, targets):                  # cross-entropy: the mean of -log p(target)
    logits, backward = transformer(w, ids)                # (N, V)
    logp = logits - np.logaddexp.reduce(logits, 1, keepdims=True)  # (N, V): log softmax
    hit = targets.reshape(-1, 1) == np.arange(V)          # (N, V): one True in a row, none where IGNORED
    dlogits = np.exp(logp) * hit.any(1, keepdims=True)    # term 1: every symbol sinks by its probability
    dlogits -= hit                                        # term 2: the right one rises by 1
    return -logp[hit].mean(), backward(dlogits / np.count_nonzero(hit))

def adamw(w, dw, m, v, t, lr, betas=(0.9, 0.98), eps=1e-8, decay=0.01):
    """Steps of about lr, whatever the size of the gradients; the matrices of linear layers also shrink a little."""
    for name in w:
        for p, g, m_p, v_p in zip(w[name], dw[name], m[name], v[name]):
            m_p += (1 - betas[0]) * (g - m_p)             # a running mean of the gradient, and of its square;
            v_p += (1 - betas[1]) * (g * g - v_p)         # both began at 0, which the next line makes up for
            step = m_p / (1 - betas[0] ** t) / (np.sqrt(v_p / (1 - betas[1] ** t)) + eps)
            p -= lr * (step + decay * p * (p.ndim == 2 and name != "embedding"))

def init(rng):
    def linear(n, m): return [rng.normal(0, m**-0.5, (n, m)), np.zeros(n)]
    norm = [np.ones(D), np.zeros(D)]
    w = {"embedding": [rng.normal(size=(V, D)), rng.normal(size=(T, D))], "norm": norm, "head": linear(V, D)}
    for i in range(L):
        w |= {("norm1", i): norm, ("qkv", i): linear(3 * D, D), ("out", i): linear(D, D)}
        w |= {("norm2", i): norm, ("up", i): linear(4 * D, D), ("down", i): linear(D, 4 * D)}
    return {name: [p.astype(np.float32) for p in pair] for name, pair in w.items()}

def batch(rng, size, held_out=False):
    """Rows like 3142>2413. If the digits add up to a multiple of ten, the row is held out: training never sees it."""
    ids, targets = np.full((size, T), END), np.full((size, T), IGNORED)
    for row, target in zip(ids, targets):
        n = rng.integers(1, LONGEST + 1)
        digits = rng.integers(0, 10, n)
        digits[0] += (0 if held_out else rng.integers(1, 10)) - digits.sum()  # (taken modulo ten, next line)
        row[: 2 * n + 1] = *digits % 10, ASK, *digits[::-1] % 10
        target[n : 2 * n + 1] = row[n + 1 : 2 * n + 2]    # from '>' on: the next symbol
    return ids, targets

def answer(w, ids):                                       # writes one symbol after the other, always the likeliest
    while len(ids) < T and ids[-1] != END:
        ids = np.append(ids, transformer(w, ids[None])[0][-1].argmax())
    return "".join(SYMBOLS[i] for i in ids)

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    w, (ids, targets) = init(rng), batch(rng, 1000, held_out=True)
    m, v = ({name: [np.zeros_like(p) for p in pair] for name, pair in w.items()} for _ in range(2))
    for t in range(1, 501):
        loss, dw = loss_and_gradients(w, *batch(rng, 64))
        adamw(w, dw, m, v, t, lr=5e-3 * min(t / 50, 1, 2 - t / 250))
        if t % 100 == 0:  # right: the true next symbol is everywhere likeliest; then it writes just that by itself
            right = (transformer(w, ids)[0].argmax(1).reshape(ids.shape) == targets) | (targets == IGNORED)
            print(f"step {t}   loss {loss:.4f}   held-out strings answered right: {right.all(1).mean():.1%}")
    print(*(answer(w, row[: row.tolist().index(ASK) + 1]) for row in ids[:6]))
