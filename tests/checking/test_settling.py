"""Differences with smaller and smaller steps: the slope, a kink, a jump, or no answer."""
from __future__ import annotations

import numpy as np
import pytest

from minitx.checking.settling import Slopes, settle


def verdict(f, x, h=2.0**-17, size=1.0):
    def slopes(h):
        with np.errstate(all="ignore"):
            below, here, above = f(x - h), f(x), f(x + h)
        return Slopes((here - below) / h, (above - below) / (2 * h), (above - here) / h)

    return settle(slopes, h, slopes(h), 1e-6, size, 100 * 4 * 2.0**-52 / h * abs(f(x)))


@pytest.mark.parametrize(
    ("f", "x", "slope"),
    [
        (np.log, 1e-6, 1e6),
        (np.sqrt, 1e-8, 5e3),
        (lambda x: np.sin(1e5 * x), 0.3, 1e5 * np.cos(1e5 * 0.3)),
        (np.exp, 1.0, np.e),
        (lambda x: 3.0, 1.0, 0.0),
        (lambda x: np.maximum(x - 1.000001, 0), 1.0, 0.0),  # a kink beside x, within the first step
        (lambda x: 1e3 * x * x, 1e-3, 2.0),
    ],
)
def test_smooth(f, x, slope):
    kind, found, _ = verdict(f, x)
    assert kind == "smooth"
    np.testing.assert_allclose(found, slope, rtol=1e-7)


def root(x):
    with np.errstate(invalid="ignore"):
        return np.sqrt(x)


@pytest.mark.parametrize(
    ("f", "x", "kind"),
    [
        (np.abs, 0.0, "kink"),
        (lambda x: np.maximum(x, 0) + x * x, 0.0, "kink"),
        (lambda x: float(x > 0), 0.0, "jump"),
        (lambda x: np.sqrt(np.abs(x)), 0.0, "jump"),  # its slope is infinite on both sides
        (root, 0.0, "unsettled"),  # nothing is there on the left
        (lambda x: np.sin(1e15 * x), 0.7, "unsettled"),
    ],
)
def test_not_smooth(f, x, kind):
    assert verdict(f, x).kind == kind
