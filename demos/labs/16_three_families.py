# %% [markdown]
# # 16. Three families: who sees whom
# Each picture is measured: a token is changed, and the outputs that move are marked. # moves, . does not.

# %%
import numpy as np

from minitx.masks import causal, padding
from minitx.models import Transformer, TransformerConfig

print("question: how does information flow in an encoder, a decoder, and an encoder-decoder?")
FLOW = {
    "encoder": """
        x1 <-> x2 <-> x3 <-> x4      every token reads every other
        |      |      |      |
        h1     h2     h3     h4      a vector each: classify, label, fill gaps""",
    "decoder": """
        BOS -> x1 --> x2 --> x3      every token reads itself and what stands before
        |      |      |      |
        x1     x2     x3     x4      each predicts the next""",
    "encoder-decoder": """
        s1 <-> s2 <-> s3             the source, read whole
        |______|______|
               | cross-attention: the target asks, the source answers
        BOS -> y1 --> y2 --> y3
        |      |      |      |
        y1     y2     y3     y4      each predicts the next""",
}


def reach(f, ids):
    """(T, S): does output t move when input s becomes another token?"""
    before, moved = f(ids), []
    for s in range(ids.shape[1]):
        changed = ids.copy()
        changed[:, s] = (changed[:, s] + 1) % 7
        moved.append(np.abs(f(changed) - before)[0].max(-1) > 1e-9)
    return np.array(moved).T


def picture(name, seen, expected):
    print(name, *("    " + " ".join("#" if there else "." for there in row) for row in seen), sep="\n")
    assert np.array_equal(seen, expected), f"{name}: what flows is not what the mask says"


# %%
small = {"layers": 2, "d_model": 16, "heads": 4, "vocab_size": 7, "dropout": 0.0}
rng = np.random.default_rng(0)
x, y = rng.integers(0, 7, (1, 4)), rng.integers(0, 7, (1, 4))
real = padding([3])
past = causal().dense(1, 4, 4)[0]


def build(family, **head):
    print(f"\n{family}{FLOW[family]}")
    return Transformer(TransformerConfig(architecture=family, **head, **small), rng=rng).astype(np.float64)


# %%
encoder = build("encoder", head="masked-lm")
picture("all four tokens real:", reach(lambda ids: encoder(ids).logits.data, x), np.ones((4, 4), bool))
seen = reach(lambda ids: encoder(ids, mask=real).logits.data, x)
picture("what three read, the fourth is padding:", seen[:3], real.dense(1, 3, 4)[0])

# %%
decoder = build("decoder")
picture("the past and oneself:", reach(lambda ids: decoder(ids).logits.data, x), past)

# %%
both = build("encoder-decoder")
picture("target to target:", reach(lambda ids: both(x, ids, mask=real).logits.data, y), past)
seen = reach(lambda ids: both(ids, y, mask=real).logits.data, x)
picture("source, whose fourth is padding, to target:", seen, real.dense(1, 4, 4)[0])
print("answer: an encoder's picture is full, a decoder's a triangle, an encoder-decoder has a triangle and a full one")
