"""Imports only go down the floors; inside a floor, what stands later may import what stands earlier."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import minitx

ROOT = Path(minitx.__file__).parent
FLOORS = [
    ["masks", "kernels"],
    ["settings", "complaints", "leaf", "methods", "accumulate", "pullback", "tensor", "op"],
    ["ops", "checking", "gradcheck", "tracing"],
    ["nn", "optim"],
    ["data", "models"],
    ["files", "generation", "tasks", "training", "audit", "learn", "bench", "interop", "plot"],
    ["cli"],
]
INSIDE = {  # the order of the files of a folder, where design.md gives one
    "nn": [
        "module", "linear", "embedding", "normalization", "positions", "attention", "feedforward", "mixture", "blocks",
    ],
}  # fmt: skip
PLACE = {name: (floor, i) for floor, names in enumerate(FLOORS) for i, name in enumerate(names)}
FILES = sorted(ROOT.rglob("*.py"))


def room(module: str) -> str:
    """minitx.ops.softmax → ops"""
    return module.split(".")[1] if "." in module else ""


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> list[str]:
    """Every minitx module that the file imports, at whatever depth, but for those only the type checker reads."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            found += [name for other in node.orelse for name in imports(other)]
            continue
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports from minitx in full: they show the floor"
            for a in node.names:  # `from minitx import masks` imports minitx.masks; `from minitx import op` the door
                deeper = f"{node.module}.{a.name}"
                path = ROOT.parent / deeper.replace(".", "/")
                is_module = path.is_dir() or path.with_suffix(".py").exists()
                found.append(deeper if is_module else str(node.module))
        found += imports(node)
    return [name for name in found if name.split(".")[0] == "minitx"]


def test_every_room_has_a_floor():
    rooms = {room(module_of(file)) for file in FILES} - {"", "__main__"}
    assert rooms <= set(PLACE), "a new room: say in FLOORS where it stands"


@pytest.mark.parametrize("file", [pytest.param(f, id=module_of(f)) for f in FILES])
def test_imports_go_down(file):
    me = module_of(file)
    if room(me) in ("", "__main__"):
        return  # the front door sees everything
    for other in imports(ast.parse(file.read_text("utf-8"))):
        if not room(other):
            assert room(me) == "cli", f"{me} imports from the front door; import from the file that has it"
            continue
        assert PLACE[room(other)] <= PLACE[room(me)], f"{me} imports {other}, which is above it"
        order = INSIDE.get(room(me), [])
        mine, theirs = me.split(".")[-1], other.split(".")[-1]
        if room(me) == room(other) and {mine, theirs} <= set(order):
            assert order.index(theirs) < order.index(mine), f"{me} imports {other}, which comes later in its folder"


def test_no_circle_inside_a_room():
    graph = {module_of(f): set(imports(ast.parse(f.read_text("utf-8")))) for f in FILES if module_of(f) != "minitx"}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path, module])
        if module not in done:
            for other in graph.get(module, ()):
                if other != module:
                    visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("module", ["minitx", "minitx.ops", "minitx.nn", "minitx.models", "minitx.gradcheck"])
def test_import_does_not_load_the_compiler(module):
    """Nor anything else that takes long or may be missing: kernels are found at the first call."""
    heavy = ["numba", "llvmlite", "torch", "matplotlib", "rich", "safetensors"]
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_needs_numpy_only():
    """The library (floors 0 to 4) imports nothing but itself, the standard library, NumPy and, in kernels, numba."""
    allowed = {"minitx", "numpy", *sys.stdlib_module_names}
    for file in FILES:
        here = room(module_of(file))
        if here in ("", "__main__") or PLACE[here][0] > 4:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            extra = {name.split(".")[0] for name in names} - allowed
            assert extra <= ({"numba", "llvmlite"} if here == "kernels" else set()), f"{module_of(file)}: {extra}"
