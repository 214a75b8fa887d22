"""The gradient of one batch, whole or in micro-batches: the same sum over the same tokens."""
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from minitx.ops import cross_entropy
from minitx.tensor import Tensor
from minitx.tracing.watching import watching
from minitx.training.config import TrainingConfig
from minitx.training.monitor import Monitor


def forward(model: Any, batch: Any) -> Any:
    """The model's Output for a batch of either kind: language model, or source and (shifted) target."""
    return model(
        batch.ids, batch.target_ids, mask=batch.mask, target_mask=batch.target_mask, positions=batch.positions
    )


def backward(model: Any, batch: Any, config: TrainingConfig, monitor: Monitor | None = None) -> float:
    """Add ∂loss/∂parameter to every `.grad`; returns the loss.

    loss = Σ over the counted tokens of the whole batch of their cross-entropy / the number of these tokens

    The divisor is that of the batch also when the sum is made in `accumulate` pieces. Dividing each piece by its own
    tokens and averaging would give a token in a short piece more weight: 1 token of loss 4 and 3 tokens of loss 1 make
    1.75 a token, not 2.5.

    Auxiliary losses are the exception: each is a mean over the tokens of one forward pass (the load balance of experts
    is not a sum over tokens), so the pieces' values are averaged with the piece's share of the rows as weight. They
    count in the gradient, times `balance_weight` or `router_z_weight`, and not in the loss returned.
    """
    tokens = batch.tokens
    rows = batch.ids.shape[0]
    total = 0.0
    with watching(monitor) if monitor is not None else nullcontext():
        for piece in batch.split(config.accumulate) if config.accumulate > 1 else [batch]:
            output = forward(model, piece)
            nats: Tensor = cross_entropy(
                output.logits, piece.targets, label_smoothing=config.label_smoothing, reduction="sum"
            )
            loss = nats * (1 / max(tokens, 1))
            total += loss.item()
            for name, aux in output.aux_losses.items():  # "decoder.0.balance", "decoder.0.router_z", ...
                weight = getattr(config, f"{name.rpartition('.')[2]}_weight")
                loss = loss + aux * (weight * piece.ids.shape[0] / rows)
            if monitor is not None:
                monitor.end_of_pass()
            loss.backward()
    return total


class NotFinite(ArithmeticError):
    """The loss or a gradient is NaN or infinite. The parameters are still those of the step before."""


def check_finite(model: Any, loss: float, step: int, lr: float) -> None:
    """Stop before the update, and say where: one NaN in one gradient would be in every weight after it."""
    gradients = [name for name, p in model.named_parameters() if p.grad is not None and not np.isfinite(p.grad).all()]
    if np.isfinite(loss) and not gradients:
        return
    weights = [name for name, p in model.named_parameters() if not np.isfinite(p.data).all()]
    words = [] if np.isfinite(loss) else [f"the loss is {loss}"]
    if gradients:
        words.append(f"the gradient is not finite in {_some(gradients)}")
    if weights:
        words.append(f"the weights themselves are not finite in {_some(weights)}")
    raise NotFinite(
        f"step {step}: {'; '.join(words)}. The update was not made. Try a lower lr (now {lr:.2e}), or find the op "
        "with `with minitx.detect_anomaly():` around Trainer.run()"
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
