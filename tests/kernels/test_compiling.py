"""How kernels are compiled, kept, and done without; threads and forks."""
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

import minitx
from minitx import Tensor, ops
from minitx.audit.cases import CASES
from minitx.kernels import compile as compiling
from minitx.kernels import normalization, parallel, say
from minitx.kernels.compile import CannotCompile, Compiled, Kernel, Worker, array, for_dtypes, kernel
from minitx.kernels.matmul import product

SMALL = """
import numpy as np
from minitx.kernels.normalization import layer_norm
x = np.arange(12, dtype=np.float32).reshape(3, 4)
y, backward = layer_norm(x)
from minitx.ops import layer_norm as op
assert np.abs(y - op.definition(x)[0]).max() < 1e-6
"""


def run(code, wait=True, **environment):
    command, environment = [sys.executable, "-W", "error", "-c", code], os.environ | environment
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return finished(process) if wait else process


def finished(process):
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    return out, err


def test_first_use_says_so_once_and_the_second_is_quiet(tmp_path):
    _, err = run(SMALL, NUMBA_CACHE_DIR=str(tmp_path))
    assert err.count("minitx: compiling kernels for this CPU; they are kept ...") == 1
    assert run(SMALL, NUMBA_CACHE_DIR=str(tmp_path)) == ("", "")


def test_a_second_process_compiles_only_where_nothing_is_compiled_yet(tmp_path):
    code = "from minitx.kernels import ahead\nahead.start = lambda: print('started')\n" + SMALL
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path))[0] == "started\n"
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path))[0] == ""
    (folder,) = tmp_path.iterdir()
    for kernel_folder in folder.iterdir():
        shutil.rmtree(kernel_folder)  # to be compiled again, but not by the first one here
    assert run(code, NUMBA_CACHE_DIR=str(tmp_path))[0] == ""


@pytest.mark.slow
def test_what_is_compiled_ahead_is_what_a_training_step_needs(tmp_path):
    run("from minitx.kernels.backward import compile_all; compile_all()", NUMBA_CACHE_DIR=str(tmp_path))
    code = """
from minitx.bench.models import MODELS
from minitx.bench.side_minitx import build
from minitx.kernels.backward import PARTS
build(MODELS[1], 1)()
for part in PARTS:
    assert list(part) and part.seconds < 0.5, (part.function.__name__, part.seconds)
"""
    run(code, NUMBA_CACHE_DIR=str(tmp_path))


STEP = """
import sys
import numpy as np
from minitx.bench.models import Size
from minitx.bench.side_minitx import build
print(build(Size(2, 5, 8, 2, 1, V=11), 1)()["loss"])
print("numba.typed.typeddict" in sys.modules)
from minitx.ops import layer_norm
x = np.arange(12.0).reshape(3, 4)  # float64: not on the disk the first time
assert np.abs(layer_norm(x).numpy() - layer_norm.definition(x)[0]).max() < 1e-12
print("numba.typed.typeddict" in sys.modules)
"""


def test_what_is_on_the_disk_is_loaded_without_the_compiler(tmp_path):
    """numba's lists and dictionaries stand for all that it loads before it compiles."""
    step = STEP.split("from minitx.ops")[0]
    first, _ = run(step, NUMBA_CACHE_DIR=str(tmp_path))
    loss, before, after = run(STEP, NUMBA_CACHE_DIR=str(tmp_path))[0].split()  # loads, then compiles in one process
    assert first.split() == [loss, "True"]
    assert (before, after) == ("False", "True")
    assert run(STEP, NUMBA_CACHE_DIR=str(tmp_path))[0].split() == [loss, "False", "False"]


def test_several_processes_at_once(tmp_path):
    code = SMALL.replace("np.float32", "np.dtype(__import__('sys').argv[1] if 0 else DTYPE)")
    both = [run(f"DTYPE = {name!r}\n{code}", wait=False, NUMBA_CACHE_DIR=str(tmp_path)) for name in ("f4", "f8", "f4")]
    for process in both:
        finished(process)
    for name in ("f4", "f8"):
        assert run(f"DTYPE = {name!r}\n{code}", NUMBA_CACHE_DIR=str(tmp_path)) == ("", "")


def test_nowhere_to_write_says_so_once(tmp_path):
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    _, err = run(SMALL, NUMBA_CACHE_DIR=str(tmp_path / "file"))
    assert err.count("no place to keep compiled kernels") == 1


def test_without_numba_it_says_so_once():
    code = """
import sys
sys.modules["numba"] = None
from minitx import Tensor
from minitx.ops import gelu, layer_norm, linear, softmax
x = Tensor([[1.0, 2.0], [3.0, 5.0]])
layer_norm(gelu(linear(x, x)))
"""
    _, err = run(code)
    assert err.count("minitx: numba is not installed") == 1
    assert len(err.splitlines()) == 1


def test_what_cannot_be_compiled_is_said_once(capsys, monkeypatch):
    monkeypatch.setattr(say, "_said", set())
    signatures = for_dtypes(lambda T: compiling.types.void(array(T, 1)))

    @kernel(*signatures)
    def impossible(x):
        return x.no_such_thing

    for _ in range(2):
        with pytest.raises(CannotCompile):
            impossible[np.dtype(np.float32)]
    assert capsys.readouterr().err.count("a kernel could not be compiled here") == 1
    with pytest.raises(CannotCompile, match="int64"):
        impossible[np.dtype(np.int64)]


def test_the_fingerprint_knows_the_flags(monkeypatch):
    monkeypatch.setattr(compiling.config, "BOUNDSCHECK", None)
    before = compiling.fingerprint()
    assert before == compiling.fingerprint()
    monkeypatch.setattr(compiling.config, "BOUNDSCHECK", 1)
    assert compiling.fingerprint() != before


def test_set_threads_refuses_what_cannot_be():
    before = parallel.get_threads()
    for n in (0, -1, 10_000):
        with pytest.raises(ValueError, match="the number of cores"):
            parallel.set_threads(n)
    assert parallel.get_threads() == before


def test_the_environment_sets_the_threads():
    code = "from minitx.kernels.parallel import get_threads; print(get_threads())"
    assert run(code, MINITX_NUM_THREADS="1")[0].strip() == "1"
    out, err = run(code, MINITX_NUM_THREADS="many")
    assert int(out) >= 1
    assert "MINITX_NUM_THREADS=many ignored" in err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_computes_on():
    """The threads of its parent are not there in the child, which starts its own."""
    code = """
import os, numpy as np
from minitx.kernels.matmul import product
a = np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32)
first = product(a, a)
pid = os.fork()
if pid == 0:
    os._exit(0 if (product(a, a) == first).all() else 3)
assert os.waitpid(pid, 0)[1] == 0
"""
    run(code)


def test_python_threads_may_call_kernels_at_once():
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(0)
    a = [rng.standard_normal((200, 200)).astype(np.float32) for _ in range(8)]
    expected = [product(x, x) for x in a]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for got, right in zip(pool.map(lambda x: product(x, x), a), expected):
                np.testing.assert_array_equal(got, right)


def refuse_to_compile(monkeypatch):
    """From here on no kernel can be compiled, or loaded from the disk."""

    def refuse(*_):
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(Kernel, "compile", refuse)
    monkeypatch.setattr(Worker, "compile", refuse)


@contextmanager
def forgotten(*modules):
    """Inside, the kernels of these modules have to be compiled or loaded anew."""
    kernels = list({id(k): k for module in modules for k in vars(module).values() if isinstance(k, Compiled)}.values())
    kept = [dict(k) for k in kernels]
    try:
        for k in kernels:
            k.clear()
        yield
    finally:
        for k, entries in zip(kernels, kept):
            k.update(entries)
            k.refused.clear()


def test_an_op_whose_kernel_cannot_be_compiled_gives_its_definition(monkeypatch, capsys):
    refuse_to_compile(monkeypatch)
    monkeypatch.setattr(say, "_said", set())
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(s) for s in ((3, 7), (7,), (7,)))
    dy = rng.standard_normal((3, 7))
    with forgotten(normalization):
        for _ in range(2):
            leaves = [Tensor(a, requires_grad=True) for a in (x, weight, bias)]
            y = ops.layer_norm(*leaves)
            y.backward(dy)
            expected, backward = ops.layer_norm.rule(x, weight, bias)
            np.testing.assert_array_equal(y.numpy(), expected)
            for leaf, g in zip(leaves, backward(dy)):
                np.testing.assert_array_equal(leaf.grad, g)
    assert capsys.readouterr().err.count("could not be compiled here") == 1


@pytest.mark.parametrize("case", [pytest.param(c, id=str(c)) for c in CASES if c.implementation.kernel is not None])
def test_a_backward_whose_kernels_cannot_be_compiled(case, monkeypatch):
    """What the forward pass did not look up is refused in the backward pass: the gradients come nevertheless."""

    def gradients(f, prepare):
        leaves = []

        def leaf(a):
            leaves.append(Tensor(a, requires_grad=True))
            return leaves[-1]

        args, options = case.lift(case.draw(), leaf)
        y = f(*args, **options)
        ys = y if isinstance(y, tuple) else (y,)
        draw = np.random.default_rng(1).standard_normal
        dys = [draw(y.shape).astype(y.dtype) for y in ys]
        prepare()
        for y, dy in zip(ys, dys):
            if y.requires_grad:
                y.backward(dy, retain_graph=True)
        return [leaf.grad for leaf in leaves]

    with minitx.reference():
        expected = gradients(case.implementation, lambda: None)
    monkeypatch.setattr(say, "_said", {*say._said})
    with forgotten(*[module for name, module in [*sys.modules.items()] if name.startswith("minitx.kernels.")]):
        found = gradients(case.implementation, lambda: refuse_to_compile(monkeypatch))
    for g, e in zip(found, expected):
        if e is None:
            assert g is None
        else:
            assert np.abs(g - e).max(initial=0) <= 1e-10 * max(1.0, np.abs(e).max(initial=0))


WRONG = """
import numpy as np
from numba import int64, void
from minitx.kernels.compile import Worker, array, for_dtypes, kernel
from minitx.kernels.memory import memory_for
from minitx.kernels.parallel import share
from minitx.kernels.pointer import address, elements

@Worker
def store(memory, args, task):
    x = elements(memory[0], args[0], 5)
    x[args[1]] = 1

@kernel(*for_dtypes(lambda T: void(int64, array(T, 2, writes=True), array(T, 1, writes=True), int64)))
def store_kernel(worker, memory, x, i):
    args = np.array([address(x), i])
    share(worker, memory, args, 1, 1)

x = np.zeros(9)
for i in (3, INDEX):
    store_kernel[x.dtype](store[x.dtype], memory_for(x.dtype, 1), x, i)
assert x[7] == 0
"""


@pytest.mark.parametrize(("index", "times"), [(4, 0), (7, 1)])
def test_bounds_are_checked_in_workers_too(tmp_path, index, times):
    """A worker cannot raise: Python says that it ignores the error, and pytest makes a failure of that."""
    path = tmp_path / "wrong.py"  # (numba keeps what comes from a file)
    path.write_text(WRONG.replace("INDEX", str(index)), encoding="utf-8")
    code = f"import runpy; runpy.run_path({str(path)!r})"
    _, err = run(code, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert err.count("IndexError: index is out of bounds") == times
