"""The exercises, one file each; the file's name is the slug with _ for -, and it holds one `EXERCISE`.

How to write one (model: softmax.py, with words/en/softmax.toml and words/zh/softmax.toml):

1. `arguments(rng)`: fresh float64 arrays by name, in the order of the signature. Sizes are distinct primes and no axes
   have one size, so that a swapped axis shows; gains and biases are random; nothing is near a kink or a tie
   (differences judge there). At most about 1000 entries with a gradient: every one is tried. Masks are booleans.
2. The solution is a minitx op (`op="layer_norm"`, called with the arguments by name), or a function of the file
   (`solution=`, called by position) where no op does just this. `gradients` names what backward answers, in order.
   Without `gradients` the function has no backward, and only values are compared.
3. `terms(dy, *arguments)`: for every gradient the numbered terms, signed, so that they sum to it. These are what
   "term 2 is missing" is said of: cut them where learners cut, as in the op's docstring. `[terms.NAME]` describes them
   without giving the formula away. A gradient of one piece needs no terms. `numbers(*arguments)` names what a wrong
   factor may be besides the sizes in `shapes` (N, the targets that count).
4. `intermediates(dy, *arguments)`: arrays under the names that learners will use as variables (those of the op's own
   source), in the order in which they are computed. The checker compares variables of these names; `[names]` says
   what each stands for.
5. `forward_cases(rng)`: arguments where the value is easily wrong; `adversarial(rng)`: where value and gradient are.
   Their names are keys of `[cases]`. The frame adds by itself: other memory order, called twice, inputs unchanged.
6. `mutants`: the mistakes people really make, as whole functions; the key's sentence in `[mutants]` says what is wrong
   and not what is right. Nothing that `terms` names already. `unusual`: right answers by other ways (einsum, loops).
7. Words: title, task, why, three hints (the idea, the term or axis, the line), note; the same keys in both languages,
   code in both alike. `python -m minitx.learn.language SLUG` marks the two as translations of each other.

Where comparing is not the question, `judge(function, rng)` returns None, or a key of `[says]` and the values of its
placeholders ({name} in the words). `question(...)` makes a question with one answer. A hunt gives `starter`, the text
of the file with the fault in it, and `mended`, that without, and is else an ordinary exercise: see hunted.py.

`equation` and `shapes` are shown in either language: symbols, and no sentences. What several wrong answers are made of
is in pieces.py.
"""

ORDER = [
    # 0, the instrument
    "central-difference", "step-width", "vjp-check", "break-it", "kinks",
    # 1, the ops
    "add", "multiply", "matmul", "sum", "mean", "max", "exp", "log", "softmax", "log-softmax", "cross-entropy",
    "gelu", "linear", "embedding", "dropout", "layer-norm", "rms-norm", "residual", "fan-out", "heads",
    "attention-weights", "attention", "causal-padding", "cross-attention", "grouped-query", "positions", "rotary",
    "alibi", "relative-bias", "swiglu", "tied-embedding", "tiled-attention", "expert-weights", "balance-loss",
    "adamw", "clipping", "kv-cache",
    # 2, hunts
    "hunt-heads", "hunt-norm", "hunt-rows", "hunt-group", "hunt-loss", "hunt-skip", "leak-mask", "leak-shift",
    # 3, questions
    "shape-after-w2", "weight-of-w2", "wider-model", "norm-first", "target-mask", "query-head", "kv-bytes",
    "score-memory", "odd-width", "norms-by-hand", "shifted-targets", "passes", "padded-prompt", "equivariance",
    "longer-text",
]  # fmt: skip
