# %% [markdown]
# # Write an op, and have its gradient checked
# An op is a function on arrays that returns its value and its backward. Here softplus, y = log(1 + e^x), a smooth ReLU.

# %%
import numpy as np

from minitx import GradientError, Tensor, gradcheck, op


@op
def softplus(x):
    y = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))  # log(1 + e^x) without overflow

    def backward(dy):
        # y = log(1 + e^x): dy/dx = e^x / (1 + e^x) = 1 - e^-y
        return dy * (1 - np.exp(-y))

    return y, backward


# %% It works on Tensors now, together with every other op.
x = Tensor(np.array([-1000.0, -1.0, 0.0, 2.0, 1000.0]), requires_grad=True)
y = softplus(x) * x
y.sum().backward()
print(y)
print(x.grad)

# %% Is the backward right? Compare with finite differences, in float64, with a random cotangent.
rng = np.random.default_rng(0)
print(gradcheck(softplus, rng.standard_normal((3, 5))))


# %% And a wrong one? `using` puts another implementation in its place.
def wrong(x):
    y, backward = softplus.definition(x)
    return y, lambda dy: -backward(dy)


with softplus.using(wrong):
    try:
        gradcheck(softplus, rng.standard_normal((3, 5)))
    except GradientError as error:
        print(error)


# %% Two inputs that broadcast against each other: the engine sums over the axes along which one was repeated.
@op(broadcasts=True)
def squared_distance(a, b):
    return (a - b) ** 2, lambda dy: (2 * dy * (a - b), -2 * dy * (a - b))


print(gradcheck(squared_distance, rng.standard_normal((3, 5)), rng.standard_normal(5)))
