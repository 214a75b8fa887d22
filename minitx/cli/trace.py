"""minitx trace DIR|PRESET: a model op by op, forward and back; if it is small, with the numbers themselves."""
from __future__ import annotations

import argparse
import inspect
from pathlib import Path
from typing import Any

import numpy as np

from minitx.cli.common import UserError, setting_up
from minitx.cli.settings import parse
from minitx.data.tokenizer import SPECIAL
from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy
from minitx.tensor import Array
from minitx.tracing import trace
from minitx.training import load_model
from minitx.training.config import nearest

# The presets in a size that can be followed by hand (init_std in proportion to the width, as for 768 it is 0.02).
SMALL = {"layers": 1, "d_model": 4, "heads": 2, "vocab_size": 7, "init_std": 0.3}
READABLE = 64  # where B * T * d_model is no more than this, the numbers are printed


def presets() -> list[str]:
    """The class methods of TransformerConfig that build one: original, gpt2, ..."""
    methods = inspect.getmembers(TransformerConfig, inspect.ismethod)
    return [name for name, _ in methods if not name.startswith(("_", "from_"))]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="DIR|PRESET", help=f"a checkpoint folder, or one of {', '.join(presets())}")
    parser.add_argument("--batch", type=int, default=1, metavar="B", help="sequences (default: 1)")
    parser.add_argument("--length", type=int, default=3, metavar="T", help="tokens in each (default: 3)")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
                        help="of a preset, which is made small: d_model=4 heads=2 layers=1 unless set")  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with setting_up():
        if min(args.batch, args.length) < 1:
            raise UserError(f"--batch and --length are at least 1, not {args.batch} and {args.length}")
        model = the_model(args).eval()  # no dropout
    B, T, config = args.batch, args.length, model.config
    rng = np.random.default_rng(0)
    inputs = {"ids": drawn(config, rng, B, T)}
    if config.architecture == "encoder-decoder":
        inputs["target_ids"] = drawn(config, rng, B, T)
    print(f"{args.source}: {model.num_parameters():,} parameters, B {B}, T {T}, d_model {config.d_model}")
    if args.source not in presets():
        print("random ids and targets: what counts here is how the numbers flow, not how good the model is")
    for name, array in inputs.items():
        print(f"{name} {array.tolist()}")
    with trace(values=B * T * config.d_model <= READABLE) as t:
        logits = model(**inputs).logits
        targets = rng.integers(logits.shape[-1], size=logits.shape[:-1])
        loss = cross_entropy(logits, targets)
        loss.backward()
    print(f"targets {targets.tolist()}\n\n{t}")
    return 0


def drawn(config: TransformerConfig, rng: np.random.Generator, B: int, T: int) -> Array:
    """Random symbols (B, T), or for a model of images random patches (B, T, patch_dim)."""
    if patch_dim := getattr(config, "patch_dim", None):
        return rng.standard_normal((B, T, patch_dim)).astype(np.float32)
    return rng.integers(min(len(SPECIAL), config.vocab_size - 1), config.vocab_size, (B, T))


def the_model(args: argparse.Namespace) -> Any:
    if Path(args.source).is_dir():
        if args.set:
            raise UserError("--set changes a preset; the model of a folder is as it is")
        return load_model(args.source).model
    if args.source not in presets():
        raise UserError(f"{args.source} is neither a folder nor a preset{nearest(args.source, presets())}")
    pairs = [text.partition("=") for text in args.set]
    if bad := next((key for key, equals, _ in pairs if not equals), None):
        raise UserError(f"--set takes key=value, like d_model=8, not {bad!r}")
    preset = getattr(TransformerConfig, args.source)
    changes = {**SMALL, "max_length": args.length}
    if getattr(preset(), "patch_dim", None):  # a model of images has no vocabulary
        changes |= {"vocab_size": 0, "patch_dim": 3, "classes": 5, "max_length": args.length + 1}
    config = preset(**{**changes, **{key: parse(value, key) for key, _, value in pairs}})
    return Transformer(config, rng=np.random.default_rng(0))
