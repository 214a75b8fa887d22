"""How a kernel takes over by name, when it does not, and what happens without numba. The example is embedding."""
import os
import subprocess
import sys

import numpy as np
import pytest

import minitx
from minitx import Tensor
from minitx.ops import embedding, exp

try:
    from minitx.kernels import compile as compiling
    from minitx.kernels import embedding as kernels
except ModuleNotFoundError:
    kernels = None

needs_numba = pytest.mark.skipif(kernels is None, reason="numba is not installed")


def python(code, **environment):
    """Run a program in a fresh interpreter; its output."""
    command, environment = [sys.executable, "-W", "error", "-c", code], os.environ | environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(dtype=np.float64, V=7, d=5, shape=(3, 11), seed=0):
    rng = np.random.default_rng(seed)
    weight, dy = (rng.standard_normal((*n, d)).astype(dtype) for n in ((V,), shape))
    return rng.integers(0, V, shape), weight, dy


def run(ids, weight, dy, **options):
    weight = Tensor(weight, requires_grad=True)
    y = embedding(ids, weight, **options)
    y.backward(dy)
    return y.numpy(), weight.grad


# ---------------------------------------------------------------------- which one runs


@pytest.fixture
def calls(monkeypatch):
    """Calls of the kernel from here on (through a stand-in, so this works without numba too)."""
    seen = []

    def kernel(ids, weight, padding_idx=None):
        seen.append(padding_idx)
        return NotImplemented if padding_idx == 3 else embedding.definition(ids, weight, padding_idx)

    monkeypatch.setattr(embedding, "_kernel", kernel)
    return seen


def test_the_kernel_is_found_by_name():
    assert exp.kernel is None
    assert embedding.kernel is (kernels.embedding if kernels else None)


def test_reference_runs_the_definition(calls):
    embedding([1], np.ones((5, 2)))
    assert len(calls) == 1
    with minitx.reference():
        embedding([1], np.ones((5, 2)))
    assert len(calls) == 1


def test_using_goes_before_both(calls):
    def zeros(ids, weight, padding_idx=None):
        return np.zeros((*np.shape(ids), weight.shape[1])), lambda dy: np.zeros_like(weight)

    with embedding.using(zeros):
        assert (embedding([1], np.ones((5, 2))).numpy() == 0).all()
        with minitx.reference():
            assert (embedding([1], np.ones((5, 2))).numpy() == 0).all()
    assert calls == []
    assert (embedding([1], np.ones((5, 2))).numpy() == 1).all()


def test_a_kernel_may_decline(calls):
    """Then the definition does it, with everything that was given, keyword Tensors too."""
    weight = Tensor(np.ones((5, 2)), requires_grad=True)
    embedding([1, 3], weight=weight, padding_idx=3).backward(np.ones((2, 2)))
    assert calls == [3]
    np.testing.assert_array_equal(weight.grad[:, 0], [0, 1, 0, 0, 0])


# ---------------------------------------------------------------------- the kernel is the definition


@needs_numba
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 0}, {"padding_idx": 6}])
@pytest.mark.parametrize("shape", [(3, 11), (0,), (), (1, 1, 1), (1009,)])
def test_definition_equals_kernel_bit_for_bit(dtype, options, shape):
    """Both add in the order of the ids."""
    arguments = example(dtype, shape=shape)
    with minitx.reference():
        expected = run(*arguments, **options)
    for a, b in zip(run(*arguments, **options), expected):
        assert a.dtype == dtype
        np.testing.assert_array_equal(a, b)


@needs_numba
def test_pitfall_06_repeats_are_bit_identical():
    arguments = example(np.float32, V=3, shape=(997,))
    first = run(*arguments)[1]
    for _ in range(50):
        np.testing.assert_array_equal(run(*arguments)[1], first)


@needs_numba
def test_pitfall_07_the_compiled_loop_checks_its_ids():
    dweight, dy = np.zeros((5, 2)), np.ones((2, 2))
    for ids in ([0, 5], [0, -1], [2**40, 0]):
        with pytest.raises(IndexError, match="out of range"):
            kernels.scatter_add(dweight, np.array(ids), dy, -1)


@needs_numba
def test_pitfall_39_read_only_and_in_any_layout():
    ids, weight, dy = example()
    expected = run(ids, weight, dy)
    frozen = np.broadcast_to(dy, dy.shape)
    fortran = np.asfortranarray(dy)
    back = dy[::-1, ::-1].copy()[::-1, ::-1]
    for other in (frozen, fortran, back):
        _, backward = kernels.embedding(ids.T.copy().T, np.asfortranarray(weight))
        np.testing.assert_array_equal(backward(other), expected[1])


# ---------------------------------------------------------------------- numba: only when needed, and not at all costs


def test_import_minitx_imports_no_numba():
    code = """
import sys, minitx, minitx.ops, minitx.masks, minitx.kernels.hash
assert not {"numba", "llvmlite"} & set(sys.modules)
"""
    python(code)


def test_without_numba_the_definitions_do_it():
    code = """
import sys
sys.modules["numba"] = None  # import numba now raises ModuleNotFoundError
import numpy as np
from minitx import Tensor
from minitx.ops import embedding
weight = Tensor(np.ones((3, 2)), requires_grad=True)
embedding([0, 2, 2], weight).backward(np.ones((3, 2)))
assert embedding.kernel is None
print(weight.grad.tolist())
"""
    assert python(code).strip() == "[[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]"


CHECK = """
import numpy as np, minitx
from minitx import Tensor
from minitx.ops import embedding
from minitx.kernels import embedding as kernels
rng = np.random.default_rng(0)
for dtype in (np.float32, np.float64):
    ids, dy = rng.integers(0, 7, (3, 11)), rng.standard_normal((3, 11, 5)).astype(dtype)
    _, backward = kernels.embedding(ids, np.zeros((7, 5), dtype))
    _, expected = embedding.definition(ids, np.zeros((7, 5), dtype))
    assert (backward(dy) == expected(dy)).all()
"""


@needs_numba
def test_bounds_checked_and_from_a_cold_and_a_warm_cache(tmp_path):
    """NUMBA_BOUNDSCHECK compiles again: numba's cache by itself would hand out the version without checks."""

    def compiled(NUMBA_BOUNDSCHECK="0"):
        python(CHECK, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_BOUNDSCHECK=NUMBA_BOUNDSCHECK)
        return {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*scatter_add*.nbc")}

    cold = compiled()
    assert len(cold) == 2  # one a dtype
    assert compiled() == cold
    checked = compiled(NUMBA_BOUNDSCHECK="1")
    assert len(checked) == 4
    assert cold.items() < checked.items()


@needs_numba
def test_nowhere_to_write_a_cache(tmp_path):
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    python(CHECK, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache"))


@needs_numba
def test_the_place_of_the_cache_depends_on_every_source(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "HERE", tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "helper.py").write_text("one = 1", encoding="utf-8")
    before = compiling.cache_directory()
    assert compiling.cache_directory() == before
    (tmp_path / "helper.py").write_text("one = 2", encoding="utf-8")
    assert compiling.cache_directory() != before
