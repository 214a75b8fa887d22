# %% [markdown]
# # 2. The residual connection
# y = x + f(x): the old representation passes by, and the layer only learns an update to it.

# %%
import numpy as np

from minitx import Tensor, nn

print("question: what does a residual connection keep, of the values and of the gradient?")
x = Tensor([[1.0, 2.0, 3.0]], requires_grad=True)
f_x = Tensor([[0.1, -0.2, 0.3]])
y = x + f_x
print("x + f(x) =", np.array2string(y.data, precision=4, floatmode="fixed"))
assert np.allclose(y.data, [[1.1, 1.8, 3.3]]), "the sum of old and new"

# %% Of the gradient: all of it, whatever f does. Here f is a dead layer, and the signal still arrives.
dead = nn.Linear(3, 3, rng=np.random.default_rng(0))
dead.weight.data = np.zeros((3, 3))
dy = np.array([[5.0, 7.0, 11.0]], np.float32)
(x + dead(x)).backward(dy)
print("dx through x + f(x):", x.grad, " through f(x) alone:", end=" ")
assert np.array_equal(x.grad, dy), "term 1 of dx is dy itself"
x.grad = None
dead(x).backward(dy)
print(x.grad)
assert not x.grad.any(), "without the shortcut nothing arrives"

# %% In a block: with nothing on the branches, pre-norm is the identity. Post-norm has a norm on the path of x.
rng = np.random.default_rng(1)
for name, norm in [("pre-norm", nn.PreNorm), ("post-norm", nn.PostNorm)]:
    residual = norm(nn.LayerNorm(3), rng=rng)
    print(f"{name:9} of x with f = 0:", residual(x, dead).data.round(4))
    assert np.array_equal(residual(x, dead).data, x.data) == (name == "pre-norm"), "only pre-norm leaves x alone"
print("answer: x itself, [1, 2, 3] inside [1.1, 1.8, 3.3], and the whole gradient dy beside what comes through f")
