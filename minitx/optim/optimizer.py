"""What all optimizers share: parameters with names, groups of options, the loop over gradients, and the saved state.

A rule (SGD, Adam, ...) only says how one array moves: `update(value, gradient, state, group, decay)`. Everything is
kept by the parameter's name and never by its place in a list, so that a saved state finds its parameters again when a
model declares them in another order.
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minitx.ops.checks import is_whole, number
from minitx.tensor import Array, Tensor

Group = dict[str, Any]
Job = tuple[str, Tensor, Array, float]  # a parameter that is to be stepped: name, Tensor, gradient, weight decay
NOTHING: dict[str, Any] = {}


class Optimizer:
    """
    The base of all optimizers.

    `params` is a Module, Tensors, (name, Tensor) pairs, or a list of groups, dicts with "params" (any of these) and the
    options that differ there: `[{"params": body}, {"params": head, "lr": 1e-2, "weight_decay": 0.0}]`. A Module's
    parameters keep their names, bare Tensors are called "0", "1", ...; a tied parameter is taken once.

    `groups` holds the options: `groups[0]["lr"]`. A group's "base_lr" is the rate it was given; a Schedule changes "lr"
    in proportion to it. A parameter whose `decay` is False is never decayed.

    A parameter without a gradient (None) is skipped: no decay, no momentum, no state. A gradient of zeros is applied.
    """

    remembers: tuple[str, ...] = ()  # what `update` keeps of a parameter: arrays of its shape, and perhaps a "step"

    def __init__(self, params: Any, **defaults: Any) -> None:
        self.groups: list[Group] = []
        self.state: dict[str, dict[str, Any]] = {}  # name → what the rule remembers of that parameter
        seen: dict[int, int] = {}  # id of a parameter → its group
        taken: set[str] = set()
        for i, given in enumerate(_as_groups(params)):
            if unknown := [k for k in given if k != "params" and k not in defaults]:
                raise TypeError(f"a group has no option {unknown[0]!r}; there are params, {', '.join(defaults)}")
            group = {**defaults, **given, "names": [], "params": []}
            for name, p in named(given["params"], start=len(seen)):
                if not p.requires_grad and not hasattr(p, "decay"):  # (a frozen Parameter may be set free later)
                    raise ValueError(
                        f"parameter {name} ({p.dtype}) never gets a gradient: make it of floats with requires_grad=True"
                    )
                if seen.setdefault(id(p), i) != i:
                    raise ValueError(f"{name} is in two groups, {seen[id(p)]} and {i}; which rate should it have?")
                if name in taken:
                    raise ValueError(f"two parameters are called {name}; state is kept by name, so names differ")
                taken.add(name)
                group["names"].append(name)
                group["params"].append(p)
            if not group["params"]:
                raise ValueError("there are no parameters to optimize (was an iterator used up before?)")
            self.check(group)
            group["base_lr"] = group["lr"]
            self.groups.append(group)

    def check(self, group: Group) -> None:
        """Raise ValueError or TypeError for options that make no sense. Rules add their own."""
        for option in ("lr", "weight_decay"):
            group[option] = _rate(group[option], option)

    def update(self, value: Array, g: Array, state: dict[str, Any], group: Group, decay: float) -> None:
        """Move `value` in place against the gradient g. `state` is empty the first time."""
        raise NotImplementedError

    # ------------------------------------------------------------------ the step

    def step(self) -> None:
        """Change every parameter that has a gradient."""
        todo = [(group, self._jobs(group)) for group in self.groups]
        if len(todo) == 1 and self.at_once(*todo[0]):
            return
        self._check_dtypes()  # before anything changes
        for group, jobs in todo:
            for name, p, g, decay in self.together(group, jobs):
                with p.writing() as value:
                    self.update(value, g, self.state.setdefault(name, {}), group, decay)

    def _jobs(self, group: Group) -> list[Job]:
        decay = group["weight_decay"]
        return [
            (name, p, g, decay if getattr(p, "decay", True) else 0.0)
            for name, p in zip(group["names"], group["params"])
            if (g := p._grad) is not None
        ]

    def _check_dtypes(self) -> None:
        for name, p in self.named_parameters():
            for key, array in self.state.get(name, NOTHING).items():
                if type(array) is np.ndarray and array.dtype != p.dtype:
                    raise TypeError(
                        f"{name} is {p.dtype} now, and {key} of this optimizer is {array.dtype}: cast the model "
                        "first, then make the optimizer"
                    )

    def at_once(self, group: Group, jobs: list[Job]) -> bool:
        """Do all of them in one kernel call, which looks at dtypes itself; or nothing, and return False."""
        return False

    def together(self, group: Group, jobs: list[Job]) -> list[Job]:
        """Do what few kernel calls can do, and return the rest, which `update` does one by one."""
        return jobs

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients; or, with `set_to_none=False`, set them to zeros, which `step` then applies."""
        for group in self.groups:
            for p in group["params"]:
                p._grad = None if set_to_none or p._grad is None else np.zeros_like(p._grad)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        for group in self.groups:
            yield from zip(group["names"], group["params"])

    @property
    def lr(self) -> float:
        """The learning rate (of the first group). Setting it sets the rate and the base rate of every group."""
        return self.groups[0]["lr"]  # type: ignore[no-any-return]

    @lr.setter
    def lr(self, rate: float) -> None:
        rate = _rate(rate, "lr")
        for group in self.groups:
            group["lr"] = group["base_lr"] = rate

    # ------------------------------------------------------------------ saving and loading

    def state_dict(self) -> dict[str, Any]:
        """A copy: {"optimizer": "AdamW", "groups": [options and "names"], "state": {name: {"m": array, ...}}}.

        But for the arrays in "state", everything is plain numbers, strings and lists.
        """
        groups = [{**_options(group, list), "names": list(group["names"])} for group in self.groups]
        return {"optimizer": type(self).__name__, "groups": groups, "state": _copied(self.state)}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a `state_dict()`: moments by name, and the options of the groups.

        Everything is checked before anything changes. Raises ValueError for another kind of optimizer, other groups, or
        a wrong shape or dtype or an impossible number; KeyError for a name or an entry that is missing or unknown.
        """
        if saved["optimizer"] != type(self).__name__:
            raise ValueError(f"the state is of {saved['optimizer']}, this is {type(self).__name__}")
        mine = dict(self.named_parameters())
        theirs = [name for group in saved["groups"] for name in group["names"]]
        if missing := [name for name in mine if name not in theirs]:
            raise KeyError(f"the state knows nothing of {missing[0]}, which this optimizer steps")
        if unknown := [name for name in (*theirs, *saved["state"]) if name not in mine]:
            raise KeyError(f"the state has {unknown[0]}, which this optimizer does not step")
        if [set(g["names"]) for g in saved["groups"]] != [set(g["names"]) for g in self.groups]:
            raise ValueError("the state was saved with the parameters in other groups; make the same groups again")
        for name, state in saved["state"].items():
            if state and self.remembers and state.keys() != set(self.remembers):
                has, wants = ", ".join(state), ", ".join(self.remembers)
                raise KeyError(f"the state of {name} has {has}; {type(self).__name__} remembers {wants}")
            for key, array in state.items():
                if key == "step":
                    if not is_whole(array) or array < 1:
                        raise ValueError(f"step of {name} counts its updates from 1, and cannot be {array!r}")
                    continue
                if not isinstance(array, np.ndarray):
                    if self.remembers:
                        raise TypeError(f"{key} of {name} is an array, not {array!r}")
                    continue
                if (array.shape, array.dtype) != (mine[name].shape, mine[name].dtype):
                    here, there = f"{mine[name].shape} {mine[name].dtype}", f"{array.shape} {array.dtype}"
                    raise ValueError(f"{key} of {name}: the parameter is {here}, the saved array {there}")
        options = [_options(group) for group in saved["groups"]]
        for group, new in zip(self.groups, options):
            if odd := sorted(new.keys() ^ _options(group).keys()):
                raise KeyError(f"the options of a group are not those of this {type(self).__name__}: {', '.join(odd)}")
            new["params"] = group["params"]
            self.check(new)
        for group, new in zip(self.groups, options):
            group.update(new)
        self.state = _copied(saved["state"])


def named(params: Any, start: int = 0) -> list[tuple[str, Tensor]]:
    """(name, Tensor) of whatever parameters may be given as, each Tensor once; bare ones are numbered from `start`."""
    if hasattr(params, "named_parameters"):
        params = params.named_parameters()
    elif isinstance(params, Tensor):
        raise TypeError("parameters come in a list: [p], not p")
    elif isinstance(params, set | frozenset):
        raise TypeError("a set has no order, and training would not repeat; give a list")
    elif isinstance(params, Mapping):
        params = params.items()
    pairs: dict[int, tuple[str, Tensor]] = {}
    for item in params:
        bare = not isinstance(item, tuple)
        name, p = (str(start + len(pairs)), item) if bare else item
        if not isinstance(p, Tensor):
            raise TypeError(f"parameters are a Module, Tensors or (name, Tensor) pairs; here is a {type(p).__name__}")
        if not p.is_leaf:
            raise ValueError(f"parameter {name} is the result of an op; only leaves can be optimized")
        pairs.setdefault(id(p), (name, p))
    return list(pairs.values())


def _rate(value: Any, what: str) -> float:
    rate = number(value, what)
    if not 0 <= rate < math.inf:
        raise ValueError(f"{what} is finite and not negative, not {value}")
    return rate


def _as_groups(params: Any) -> list[Group]:
    if not hasattr(params, "named_parameters") and not isinstance(params, Tensor | set | frozenset | Mapping):
        params = list(params)
        if params and all(isinstance(item, Mapping) for item in params):
            if any("params" not in group for group in params):
                raise TypeError('a group is a dict with "params" and the options that differ: {"params": p, "lr": 1}')
            return [dict(group) for group in params]
    return [{"params": params}]


def _options(group: Group, sequence: type = tuple) -> Group:
    """The options of a group alone, pairs as tuples (in a saved state as lists: JSON has no tuples)."""
    options = {k: v for k, v in group.items() if k not in ("names", "params")}
    return {k: sequence(v) if isinstance(v, list | tuple) else v for k, v in options.items()}


def _copied(state: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Arrays are copied; numbers are what they are."""
    return {
        name: {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in entry.items()}
        for name, entry in state.items()
    }
