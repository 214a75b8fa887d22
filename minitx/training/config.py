"""What a run is made of, apart from the model: steps, batch, optimizer, schedule, and when to look."""
from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SCHEDULES = ("cosine", "linear", "constant", "noam")
OPTIMIZERS = ("adamw", "adam", "sgd")
DTYPES = ("float32", "float64")


def setting(default: Any, meaning: str, **limits: Any) -> Any:
    """A field that knows what it means and what it may be: low=, above=, high=, below=, choices=."""
    return field(default=default, metadata={"meaning": meaning, **limits})


@dataclass(frozen=True)
class TrainingConfig:
    """The settings of a run: plain values, checked when made. Where config.json has them: models/run_section.py.

    >>> TrainingConfig(steps=100).lr
    0.001
    """

    steps: int = setting(2000, "optimizer steps in all", low=1)
    batch_size: int = setting(64, "sequences a step", low=1)
    accumulate: int = setting(1, "micro-batches a step: less memory, the same gradient", low=1)
    optimizer: str = setting("adamw", "how gradients become steps", choices=OPTIMIZERS)
    lr: float = setting(1e-3, "learning rate at its highest, whatever the schedule", above=0)
    schedule: str = setting("cosine", "the course of the learning rate after warm-up", choices=SCHEDULES)
    warmup: int = setting(100, "steps of linear warm-up (at most half the run)", low=0)
    min_lr_ratio: float = setting(0.1, "the last rate as a share of the highest (cosine, linear)", low=0, high=1)
    betas: tuple[float, float] = setting((0.9, 0.98), "decay of Adam's two moments", low=0, below=1)
    eps: float = setting(1e-8, "Adam's epsilon, outside the root", above=0)
    momentum: float = setting(0.9, "momentum (sgd)", low=0, below=1)
    weight_decay: float = setting(0.01, "decoupled in adamw, L2 else; not on biases, gains, embeddings", low=0)
    clip: float = setting(1.0, "largest global norm of the gradient; 0 does not clip", low=0)
    label_smoothing: float = setting(0.0, "probability moved from the target to all classes alike", low=0, below=1)
    balance_weight: float = setting(0.01, "weight of the load balance of experts, in each layer that has them", low=0)
    router_z_weight: float = setting(0.001, "weight of the squared log-sum-exp of a router's scores", low=0)
    eval_every: int = setting(250, "steps between looks at held-out data; 0: only after the last", low=0)
    log_every: int = setting(10, "steps between lines of log.jsonl", low=1)
    detail_every: int = setting(100, "steps between lines with figures per layer; 0: never", low=0)
    save_every: int = setting(0, "steps between saves besides those at each evaluation; 0: none", low=0)
    seed: int = setting(0, "of initial weights, dropout and data", low=0)
    dtype: str = setting("float32", "of weights, gradients and optimizer state", choices=DTYPES)

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            value = _typed(f.name, getattr(self, f.name), f.default)
            _check_limits(f.name, value, f.metadata)
            object.__setattr__(self, f.name, value)

    @property
    def warmup_steps(self) -> int:
        """Warm-up takes at most half of a run, so that a short trial also reaches the full rate."""
        return min(self.warmup, self.steps // 2)

    def replace(self, **changes: Any) -> TrainingConfig:
        return TrainingConfig.from_dict({**self.to_dict(), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Plain values that survive JSON and TOML."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        known = [f.name for f in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                raise ValueError(f"no training setting is called {key!r}{nearest(key, known)}")
        return cls(**values)


def nearest(key: str, known: Iterable[str]) -> str:
    """`; did you mean 'd_model'?`, or the whole list where nothing is near."""
    known = sorted(known)
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"


def _typed(name: str, value: Any, default: Any) -> Any:
    """The value in the type of its default; JSON has no tuples, and an integer will do for a float."""
    if isinstance(default, tuple):
        if not isinstance(value, list | tuple) or len(value) != len(default):
            raise TypeError(f"{name} is {len(default)} numbers, like {list(default)}, not {value!r}")
        return tuple(_typed(name, v, d) for v, d in zip(value, default))
    if isinstance(default, str):
        if not isinstance(value, str):
            raise TypeError(f"{name} is a word, like {default!r}, not {value!r}")
        return value
    wanted = int if isinstance(default, int) else float
    kinds = (int, np.integer) if wanted is int else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{name} is {'a whole number' if wanted is int else 'a number'}, like {default}, not {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} is finite, not {value}")
    return wanted(value)


def _check_limits(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    if "choices" in limits:
        if value not in limits["choices"]:
            raise ValueError(f"{name} is one of {', '.join(limits['choices'])}, not {value!r}")
        return
    for v in value if isinstance(value, tuple) else (value,):
        bad = (
            (f"at least {limits['low']}" if "low" in limits and v < limits["low"] else "")
            or (f"above {limits['above']}" if "above" in limits and v <= limits["above"] else "")
            or (f"at most {limits['high']}" if "high" in limits and v > limits["high"] else "")
            or (f"below {limits['below']}" if "below" in limits and v >= limits["below"] else "")
        )
        if bad:
            raise ValueError(f"{name} is {bad}, not {v}")
