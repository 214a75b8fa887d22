"""Why a witness has nothing to say: no empty cell without a reason. (A test holds these lists complete, and short.)"""
from __future__ import annotations

from minitx.audit.case import Case

NO_KERNEL = "no kernel: the definition itself runs"
NO_KERNEL_INSIDE = "no kernel: none of its ops has one"
NO_NUMBA = "numba is not installed: the definition itself runs"
NO_TORCH = "PyTorch is not installed"
NOTHING_TO_LEARN = "nothing is differentiated: no parameters, and no floats among the inputs"

SMALLEST = {  # ops that no smaller ops make, by name, or by name and label
    **dict.fromkeys(("add", "mul", "log", "erf", "reshape", "pad"), "it is among the smallest ops"),
    "concatenate": "it is among the smallest ops: other axes are made of this one",
    "getitem": "it is among the smallest ops: other indices are made of these",
    "take_along_axis[axis=0, broadcast]": "its other case is the one that is made of smaller ops",
    "einsum[diagonal]": "a diagonal is among the smallest ops",
}
NOT_IN_TORCH = {
    "dropout": "PyTorch draws which elements to drop in another way",
    "attention[dropout]": "PyTorch draws which weights to drop in another way",
    "tiled_attention[dropout]": "PyTorch draws which weights to drop in another way",
    "tiled_attention[drops everything]": "PyTorch divides by 1 - p, which is 0 here",
    "dispatch": "PyTorch has no such function",
    "combine": "PyTorch has no such function",
    "put_rows": "PyTorch has no such function",
    "getitem[reversed]": "PyTorch has no negative steps",
    "rotary[linear]": "PyTorch has no scaled rotary positions",
    "rotary[dynamic]": "PyTorch has no scaled rotary positions",
    "rotary[yarn]": "PyTorch has no scaled rotary positions",
    "rotary[llama3]": "PyTorch has no scaled rotary positions",
}


def in_smaller_ops(case: Case) -> str:
    return SMALLEST.get(str(case)) or SMALLEST[case.op]


def in_torch(case: Case) -> str:
    return NOT_IN_TORCH.get(str(case)) or NOT_IN_TORCH[case.op]
