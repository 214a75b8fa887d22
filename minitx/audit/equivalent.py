"""Mutants that no check can reject, and why: they are not wrong. (tests/audit/test_mutants.py holds it to that.)"""
EQUIVALENT = {
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -29, 28)": "exp(-28²) is 0 already",
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -28, 29)": "exp(-28²) is 0 already",
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -27, 28)": "exp(-27²) is below every normal number",
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -28, 27)": "exp(-27²) is below every normal number",
    "power: less_one = np.where(y == 0, 0, y - 1)  →  less_one = np.where(y == 0, 1, y - 1)":
        "multiplied by y, which is 0 there",
    "power: flat = (x == 0) & (y >= 0)  →  flat = (x == 0) & (y >= -1)":
        "differs at 0 to a negative power only, whose value is infinite",
    "getitem: if repeats:  →  if True:": "np.add.at is right without repeats too, and slower",
    "matmul: if Y.ndim == 2 < X.ndim:  →  if False:": "a shortcut: otherwise the engine sums over the stack",
    "matmul: if Y.ndim == 2 < X.ndim:  →  if Y.ndim == 1 < X.ndim:":
        "a shortcut: otherwise the engine sums over the stack",
    "matmul: dy = dY.squeeze(-1) if y.ndim == 1 else dY  →  dy = dY.squeeze(1) if y.ndim == 1 else dY":
        "dY has two axes there",
    "einsum: if letters == own:  →  if False:": "a shortcut: without a diagonal the engine sums",
    "logsumexp: p = e / np.where(nothing, 1, total)  →  p = e / np.where(nothing, 2, total)": "e is 0 there",
    "attention_weights: full = (1,) * (g.ndim - len(shape)) + shape  →  full = (0,) * (g.ndim - len(shape)) + shape":
        "then an axis of length 1 is summed as well",
    "attention_weights: return g.sum(repeated, keepdims=True).reshape(shape)  →  return g.sum(repeated).reshape(shape)":
        "the reshape puts the axes back",
    "cross_entropy: if epsilon:  →  if True:": "subtracts 0",
    "cross_entropy: if all_counted:  →  if False:": "a shortcut",
    "log_softmax: return dx if alive.all() else np.where(alive, dx, 0)  →  return np.where(alive, dx, 0)": "a shortcut",
}  # fmt: skip
