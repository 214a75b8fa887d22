"""A recorded walk: a learner who makes the usual mistakes in softmax, LayerNorm and attention, and what they are told.

    python -m minitx.learn.walk DIR        writes walk-en.svg and walk-zh.svg (with rich, of the extra `app`)

Nothing is staged: every version is written to a file and checked as `minitx learn check` does it.
"""
from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from minitx.learn.console import colour
from minitx.learn.folder import file_of
from minitx.learn.language import LANGUAGES
from minitx.learn.render import rendered
from minitx.learn.runner import check_file
from minitx.learn.shelf import exercise

WIDTH = 104


class Try(NamedTuple):
    """One save of the file: the lines that are new, by the names of their places in the text."""

    slug: str
    lines: dict[str, str]


TEXTS = {
    "softmax": '''import numpy as np

def softmax(x):
    {shift}
    e = np.exp({shifted})
    y = e / {total}

    def backward(dy):
        {dx}
        return dx

    return y, backward
''',
    "layer-norm": '''import numpy as np

def layer_norm(x, weight, bias, eps=1e-5):
    c = x - x.mean(-1, keepdims=True)
    c = c - c.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
    xhat = c * r
    y = weight * xhat + bias

    def backward(dy):
        {dxhat}
        {dx}
        axes = tuple(range(dy.ndim - 1))
        return dx * r, (dy * xhat).sum(axes), dy.sum(axes)

    return y, backward
''',
    "attention": '''import numpy as np

def attention(q, k, v):
    scale = 1 / np.sqrt(q.shape[-1])
    z = q @ k.swapaxes(-1, -2) * scale
    e = np.exp(z - z.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)

    def backward(do):
        dv = w.swapaxes(-1, -2) @ do
        dw = do @ v.swapaxes(-1, -2)
        {dz}
        {ds}
        dq = ds @ k
        {dk}
        return dq, dk, dv

    return w @ v, backward
''',
}  # fmt: skip

PLAIN = {"shift": "", "shifted": "x", "total": "e.sum(-1, keepdims=True)"}
STABLE = {
    "shift": "top = x.max(-1, keepdims=True)",
    "shifted": "x - np.where(np.isfinite(top), top, 0)",
    "total": "np.maximum(e.sum(-1, keepdims=True), 1e-300)",
}
NORM = "dx = dxhat - dxhat.mean(-1, keepdims=True) - xhat * (dxhat * xhat).{}(-1, keepdims=True)"
DZ = {"dz": "dz = w * (dw - (dw * w).sum(-1, keepdims=True))"}

TRIES = [
    Try("softmax", PLAIN | {"dx": "dx = y * (1 - y) * dy"}),
    Try("softmax", STABLE | {"dx": "dx = y * (1 - y) * dy"}),
    Try("softmax", {"dx": "dx = y * dy"}),
    Try("softmax", {"dx": "dx = y * (dy - (dy * y).sum(-1, keepdims=True))"}),
    Try("layer-norm", {"dxhat": "dxhat = dy", "dx": "dx = dxhat"}),
    Try("layer-norm", {"dxhat": "dxhat = weight * dy"}),
    Try("layer-norm", {"dx": NORM.format("sum")}),
    Try("layer-norm", {"dx": NORM.format("mean")}),
    Try("attention", {"dz": "dz = w * dw", "ds": "ds = dz", "dk": "dk = ds @ q"}),
    Try("attention", {"dk": "dk = ds.swapaxes(-1, -2) @ q"}),
    Try("attention", DZ),
    Try("attention", {"ds": "ds = dz * scale"}),
]


def versions() -> Iterator[tuple[str, str, list[str]]]:
    """Slug, the whole file, and the lines that are new in it."""
    lines: dict[str, str] = {}
    slug, before = "", ""
    for attempt in TRIES:
        lines = attempt.lines if attempt.slug != slug else lines | attempt.lines
        slug, before = attempt.slug, before if attempt.slug == slug else ""
        text = "\n".join(line for line in TEXTS[slug].format(**lines).split("\n") if line.strip() or not line) + "\n"
        old = before.splitlines()
        yield slug, text, [line for line in text.splitlines() if line.strip() and line not in old]
        before = text


def walk(lang: str, out: Callable[[str], None]) -> None:
    """Everything that the terminal shows."""
    with tempfile.TemporaryDirectory() as scratch:
        last = ""
        for slug, text, new in versions():
            path = file_of(Path(scratch), exercise(slug))
            path.write_text(text, "utf-8")
            if slug != last:
                out(colour(f"{'─' * WIDTH}", "dim"))
            else:
                out("\n".join(colour(f"  + {line}", "blue") for line in new) + "\n")
            last = slug
            out(f"$ minitx learn check {slug}\n")
            out(rendered(check_file(exercise(slug), path), lang).replace(scratch + os.sep, "") + "\n")


def picture(lang: str) -> str:
    """The walk as SVG."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH + 2, file=io.StringIO(), force_terminal=True)
    before = os.environ.get("FORCE_COLOR", "")
    os.environ["FORCE_COLOR"] = "1"
    try:
        walk(lang, lambda text: console.print(Text.from_ansi(text)))
    finally:
        os.environ["FORCE_COLOR"] = before
    return console.export_svg(title="minitx learn", clear=True)


def main(argv: list[str]) -> int:
    folder = Path(argv[0] if argv else ".")
    for lang in LANGUAGES:
        path = folder / f"walk-{lang}.svg"
        path.write_text(picture(lang), "utf-8", newline="\n")
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
