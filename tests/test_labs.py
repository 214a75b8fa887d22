"""Every lab runs, prints its question and then its answer, and the figures in between are those of the course."""
import ast
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from minitx.ops import attention, layer_norm

LABS = Path(__file__).parent.parent / "demos" / "labs"


def near(pattern, value, tolerance):
    return pattern, value - tolerance, value + tolerance


# What has to be printed: words as they are, or the numbers that a pattern finds and where they may lie.
FIGURES = {
    "01_block_parts": [
        "W1: (32, 16)  W2: (16, 32)", "input: (2, 6, 16)  output: (2, 6, 16)  changed: True", "12 of 12",
        "PreNorm", "width 32: (2, 6, 32)", "heads divides d_model",
        "Q, K, V: (2, 8, 128, 64)  scores: (2, 8, 128, 128)  output: (2, 128, 512)",
    ],
    "02_residual": [
        "[[1.1000 1.8000 3.3000]]", "dx through x + f(x): [[ 5.  7. 11.]]  through f(x) alone: [[0. 0. 0.]]",
    ],
    "03_layernorm": [
        "[[-0.849 -0.566 -0.283  1.697]\n [-0.805 -0.626 -0.268  1.699]]", "row means: [0. 0.]  row stds: [1. 1.]",
        "LayerNorm of [1, 3]: [-1.  1.]", near(r"RMSNorm of \[1, 3\]: +\[([\d.]+)", 1 / math.sqrt(5), 5e-5),
        near(r"RMSNorm of \[1, 3\]: +\[[\d.]+ ([\d.]+)\]", 3 / math.sqrt(5), 5e-5),
    ],
    "04_feedforward": ["input: (2, 5, 8)  inside: (2, 5, 32)  output: (2, 5, 8)", "25,196,544", "5,637,144,576"],
    "05_positions": [
        "[[ 0.0000  1.0000  0.0000  1.0000  0.0000  1.0000  0.0000  1.0000]",
        " [ 0.8415  0.5403  0.0998  0.9950  0.0100  1.0000  0.0010  1.0000]",
        " [ 0.9093 -0.4161  0.1987  0.9801  0.0200  0.9998  0.0020  1.0000]]",
        "0.841470985 0.540302306 0.025116223 0.999684538 0.000630957", "width 1, position 3: 0.141120008",
        "position 4 arrived",
    ],
    "06_tokens_to_vectors": ["ids: [[0, 1, 2]]  table: (3, 6)  vectors: (1, 3, 6)", "logits: (1, 3, 3)"],
    "07_both_masks": [(r"move by ([-\de+.]+) under both", 0, 1e-6), (r"move by ([\d.]+) under (?!both)", 0.1, 10)],
    "08_zero_padding": [
        "[2.8284 2.8284 2.8284]", "[0.5]", (r"take (\d+)%", 20, 60), (r"padding\(.* by (\S+)$", 0, 1e-6),
    ],
    "09_padded_rows": [
        (r"row 1: ([\d.]+)", 0.1, 10), (r"pool .*by (\S+) when", 0, 1e-12), (r"plain .*by (\S+)$", 1, 99),
        "/ 8 real targets",
    ],
    "10_mask_conventions": [
        "no mask:                        15.0", "as meant:   10.0", "~:  10.0", "score:        10.0",
        "unconverted:  20.0", "int64: a mask is boolean", "float64: a mask is boolean",
    ],
    "11_cross_attention": [
        "target: (2, 3, 16)  memory: (2, 5, 16)  mask: (3, 3)  output: (2, 3, 16)", "cross (2, 4, 3, 5)",
        "target: (2, 4, 16)  memory: (2, 5, 16)  mask: (4, 4)  output: (2, 4, 16)", "[[  0. -inf -inf -inf]",
        (r"as an object: (\S+)", 0, 1e-12), (r"as padding, by (\S+)", 0, 1e-12),
    ],
    "12_permutation": [
        (r"no positions, no mask +(\S+)", 0, 1e-12), (r"with sinusoidal\D+(\S+)", 0.1, 10),
        (r"causal mask +(\S+)", 0.1, 10),
    ],
    "13_grouped_heads": [
        "read [0 1 2 3 4 5 6 7]", "read [0 0 0 0 1 1 1 1]", "read [0 0 0 0 0 0 0 0]",
        (r"repetition: (\S+)", 0, 1e-12), "cached 128", "cached 32", "cached 16",
    ],
    "14_norm_modes": [
        (r"(?:Layer|RMS)Norm +training or inference: ([\d.]+)", 0, 0), (r"Dropout .*inference: ([\d.]+)", 1, 99),
        (r"BatchNorm training or inference: ([\d.]+)", 1, 99),
    ],
    "15_shift": [
        "['BOS' 'A' 'B']  says ['A' 'B' 'EOS']", (r"loss .* copies its input: ([\d.]+)", 0, 1e-6),
        near(r"knows nothing: +([\d.]+)", math.log(11), 1e-4),
    ],
    "16_three_families": [
        "# # # #\n    # # # #\n    # # # #\n    # # # #", "# . . .\n    # # . .\n    # # # .\n    # # # #",
        "# # # .\n    # # # .\n    # # # .\n    # # # .",
    ],
    "17_teacher_forcing": [(r"any logit: (\S+)", 0, 1e-10), "time: one pass ", "one after the other 2/2"],
    "18_depth": [
        (r"pre-norm, \d+ layers .*bottom/top ([\d.]+)", 1, 30), near(r"pre-norm: the top.* is ([\d.]+)", 0.5, 0.15),
        near(r"post-norm: the top.* is ([\d.]+)", 1, 0.15), (r"post-norm, 48 .*factor of ([\d.]+)", 5, 500),
    ],
    "19_router": [(r"load without ([\d.]+)", 0.8, 1), (r"with ([\d.]+);", 0.25, 0.45)],
    "20_memory": [
        "134,217,728 elements, 256 MiB in fp16", "8 KV heads, width 128, 2 bytes: 1 GiB", "16,777,216 elements",
        "GQA, 8            1.000 GiB", "MQA, 1            0.125 GiB", "a window of 4,096: 0.500 GiB",
    ],
    "21_misconceptions": [
        (r"tokens: (\S+) apart without", 0, 1e-12), (r"of the first tokens (\d+)%", 100, 100),
        (r"of the rest (\d+)%", 0, 60), "reads      10 keys", "reads   1,000 keys", "reads 100,000 keys",
        "   512,000 bytes", "51,200,000 bytes", "depend on 15 of them", (r"blocks: [\d.]+ [\d.]+ ([\d.]+)", 3, 99),
        (r"x  10: .*average ([\d.]+)", 0.999, 1),
    ],
    "22_used_context": [
        (r"^(?:none|relative|alibi|sinusoidal|rotary|learned) +([\d.]+)", 0.9, 1),
        (r"^learned .* ([\d.]+)$", 0, 0.5), (r"^relative .* ([\d.]+)$", 0.9, 1),
    ],
    "23_noise": [
        near(r"^causal  +([\d.]+) nats", math.log(16), 0.1), (r"off by one.* ([\d.]+) nats", 0, 1.5),
        (r"not shifted +([\d.]+) nats", 0, 0.5),
    ],
    "24_linear_attention": [
        near(r"T +16: relative error ([\d.]+)", 0.65, 0.02), (r"T +1024: relative error ([\d.]+)", 0.75, 0.9),
        (r"T +1024: softmax ([\d.]+)", 0.99, 1), (r"T +1024: .*linear ([\d.]+)", 0, 0.005),
        (r"same weights: (\S+)", 0, 1e-12),
    ],
    "25_incremental": [
        (r"one by one (\S+) apart", 0, 1e-10), (r"at once (\S+)$", 0, 1e-10), "98,304 bytes", "196,608 bytes",
    ],
}  # fmt: skip
SLOW = {"18_depth", "22_used_context", "23_noise"}


def lab(name, capsys):
    runpy.run_path(str(LABS / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in FIGURES])
def test_a_lab_and_its_figures(name, capsys):
    said = lab(name, capsys)
    for figure in FIGURES[name]:
        if isinstance(figure, str):
            assert figure in said
            continue
        pattern, low, high = figure
        numbers = [float(number.replace(",", "").rstrip(",;")) for number in re.findall(pattern, said, re.M)]
        assert numbers, pattern
        assert low <= min(numbers), (pattern, numbers)
        assert max(numbers) <= high, (pattern, numbers)
    lines = said.splitlines()
    assert lines[0].startswith("question: ")
    assert any(line.startswith("answer: ") for line in lines[-2:])
    said.encode("ascii")


def test_all_labs_are_here():
    assert sorted(FIGURES) == sorted(path.stem for path in LABS.glob("*.py"))


@pytest.mark.parametrize("name", FIGURES)
def test_a_lab_is_short_and_its_numbers_stop_it(name):
    text = (LABS / f"{name}.py").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 90
    assert lines[0] == "# %% [markdown]"
    assert lines[1].startswith(f"# # {int(name[:2])}. ")
    assert sum(line.startswith("# %%") for line in lines) >= 3
    asserts = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
    assert asserts
    assert all(node.msg is not None for node in asserts)


def test_the_pictures_print_on_a_plain_console(tmp_path):
    done = subprocess.run(
        [sys.executable, str(LABS / "16_three_families.py")], cwd=tmp_path, capture_output=True, encoding="ascii",
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "# . . .\n" in done.stdout


def without_centring(x, gain=None, bias=None, eps=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps), lambda dy: ()


def without_mask(*inputs, mask=None, **options):
    return attention.definition(*inputs, **options)


@pytest.mark.parametrize(("name", "op", "wrong"), [
    ("03_layernorm", layer_norm, without_centring),
    ("07_both_masks", attention, without_mask),
    ("16_three_families", attention, without_mask),
    ("17_teacher_forcing", attention, without_mask),
])  # fmt: skip
def test_a_wrong_op_stops_a_lab(name, op, wrong, capsys):
    with op.using(wrong), pytest.raises(AssertionError):
        lab(name, capsys)
