"""Answers as a learner writes them: whole files, by slug."""

HEAD = "import numpy as np\n\n\n"

SOFTMAX = HEAD + '''def softmax(x):
    top = x.max(-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    y = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)

    def backward(dy):
        dx = y * (dy - (dy * y).sum(-1, keepdims=True))
        return dx

    return y, backward
'''

LINEAR = HEAD + '''def linear(x, weight, bias):
    y = x @ weight.T + bias

    def backward(dy):
        rows = dy.reshape(-1, dy.shape[-1])
        dx = dy @ weight
        dweight = rows.T @ x.reshape(-1, x.shape[-1])
        dbias = rows.sum(0)
        return dx, dweight, dbias

    return y, backward
'''

LAYER_NORM = HEAD + '''def layer_norm(x, weight, bias, eps=1e-5):
    c = x - x.mean(-1, keepdims=True)
    c = c - c.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
    xhat = c * r
    y = weight * xhat + bias

    def backward(dy):
        dxhat = dy * weight
        dx = dxhat - dxhat.mean(-1, keepdims=True) - xhat * (dxhat * xhat).mean(-1, keepdims=True)
        axes = tuple(range(dy.ndim - 1))
        return dx * r, (dy * xhat).sum(axes), dy.sum(axes)

    return y, backward
'''

EMBEDDING = HEAD + '''def embedding(ids, weight):
    y = weight[ids]

    def backward(dy):
        dweight = np.zeros(weight.shape, weight.dtype)
        np.add.at(dweight, ids, dy)
        return dweight

    return y, backward
'''

ADD = HEAD + '''def fit(g, shape):
    g = g.sum(tuple(range(g.ndim - len(shape))))
    return g.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


def add(x, y):
    z = x + y
    return z, lambda dz: (fit(dz, x.shape), fit(dz, y.shape))
'''

CROSS_ENTROPY = HEAD + '''def cross_entropy(logits, targets, ignore_index=-100):
    counted = targets != ignore_index
    n = max(counted.sum(), 1)
    x = logits - logits.max(-1, keepdims=True)
    e = np.exp(x)
    p = e / e.sum(-1, keepdims=True)
    onehot = (np.arange(x.shape[-1]) == targets[..., None]) & counted[..., None]
    log_p = x - np.log(e.sum(-1, keepdims=True))
    loss = -np.where(onehot, log_p, 0).sum() / n

    def backward(dloss):
        return (p - onehot) * counted[..., None] / n * dloss

    return loss, backward
'''

ATTENTION_WEIGHTS = HEAD + '''def attention_weights(q, k, mask):
    scale = 1 / np.sqrt(q.shape[-1])
    z = np.where(mask, q @ k.swapaxes(-1, -2) * scale, -np.inf)
    top = z.max(-1, keepdims=True)
    e = np.exp(z - np.where(np.isfinite(top), top, 0))
    w = e / np.maximum(e.sum(-1, keepdims=True), 1e-300 if q.dtype == np.float64 else 1e-30)

    def backward(dw):
        dz = w * (dw - (dw * w).sum(-1, keepdims=True))
        ds = dz * scale
        return ds @ k, ds.swapaxes(-1, -2) @ q

    return w, backward
'''

ANSWERS = {
    "softmax": SOFTMAX,
    "linear": LINEAR,
    "layer-norm": LAYER_NORM,
    "embedding": EMBEDDING,
    "add": ADD,
    "cross-entropy": CROSS_ENTROPY,
    "attention-weights": ATTENTION_WEIGHTS,
}
