# %% [markdown]
# # 10. Two Boolean conventions
# In minitx (and PyTorch's scaled_dot_product_attention) True means "may be seen". In the padding and attention masks of
# PyTorch's MultiheadAttention True means "is hidden". The same array, the opposite meaning.

# %%
import numpy as np

from minitx import Tensor, attention

print("question: two keys with values 10 and 20, and only the first may be seen; what does each convention say?")
q = Tensor(np.zeros((1, 1, 1, 1)))
k = Tensor(np.zeros((1, 1, 2, 1)))
v = Tensor(np.array([10.0, 20.0]).reshape(1, 1, 2, 1))

may_see = np.array([[True, False]])  # True = may be seen
hidden = np.array([[False, True]])  # True = is hidden
floats = np.array([[0.0, -np.inf]])  # added to the scores


def answer(**given):
    return attention(q, k, v, **given).data.item()


print("no mask:                       ", answer())
print("True = may be seen, as meant:  ", answer(mask=may_see))
print("True = is hidden, converted ~: ", answer(mask=~hidden))
print("-inf added to the score:       ", answer(bias=floats))
print("True = is hidden, unconverted: ", answer(mask=hidden))
assert answer() == 15, "equal scores, so the mean"
assert answer(mask=may_see) == answer(mask=~hidden) == answer(bias=floats) == 10, "the first key only"
assert answer(mask=hidden) == 20, "the wrong convention shows exactly what should be hidden"

# %% Numbers are not guessed at: 0 and 1 could mean either.
for wrong in (np.array([[1, 0]]), floats):
    try:
        answer(mask=wrong)
        raise AssertionError("a mask of numbers has to be refused")
    except TypeError as error:
        print(f"{wrong.dtype}: {error}")
print("answer: 10 where the convention fits, 20 where it does not: invert (~) once, at the border between libraries")
