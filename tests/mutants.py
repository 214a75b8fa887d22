"""Wrong backward passes made by a machine: one small change at one place of the backward pass of one op.

    python tests/mutants.py        how many there are, how many the tests catch, and how many of the same ones the usual
                                   check, `y.sum()` with gain 1 and bias 0, accepts (-v: which ones are alive)
"""
from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from witnesses import passes_corners, passes_gradient_check, passes_usual_check

from minitx.op import Composite, Op, registry

# ---------------------------------------------------------------------- one small change

FLIP = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
SWAP = {"sum": "mean", "mean": "sum", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
DROP = {"sum", "mean", "T", "swapaxes", "transpose", "reshape", "exp", "log", "sqrt", "tanh", "abs", "clip"}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What could stand in place of this node by mistake."""
    match node:
        case ast.BinOp(left, op, right):
            if type(op) in FLIP:
                yield ast.BinOp(left, FLIP[type(op)](), right)  # the sign, or a factor that should divide
                yield left  # drop a term or a factor
                if not isinstance(op, ast.Div):
                    yield right
            if isinstance(op, ast.MatMult | ast.Sub | ast.Div | ast.Pow):
                yield ast.BinOp(right, op, left)
        case ast.UnaryOp(ast.USub() | ast.Invert() | ast.Not(), operand):
            yield operand
        case ast.Compare(left, [op], right) if type(op) in FLIP:
            yield ast.Compare(left, [FLIP[type(op)]()], right)
        case ast.BoolOp(op, values) if "need" not in ast.unparse(node):
            yield ast.BoolOp(FLIP[type(op)](), values)
        case ast.IfExp(test, body, orelse) if "need" not in ast.unparse(test):  # (need saves work, it changes nothing)
            yield from (body, orelse)
        case ast.Attribute(value, "T"):
            yield value
        case ast.Call(ast.Attribute(value, name) as function, args, keywords):
            if name in SWAP:
                yield ast.Call(ast.Attribute(value, SWAP[name], function.ctx), args, keywords)
            if name in DROP:
                yield args[0] if ast.unparse(value) == "np" else value
            if name == "where" and len(args) == 3:
                yield from (args[1], args[2], ast.Call(function, [args[0], args[2], args[1]], keywords))
            for k in keywords:
                if k.arg == "keepdims":
                    yield ast.Call(function, args, [other for other in keywords if other is not k])
        case ast.Constant(bool()):
            pass
        case ast.Constant(int(n)):
            yield from (ast.Constant(n + 1), ast.Constant(n - 1))  # a factor, an index, an axis
        case ast.Constant(float(c)):
            yield ast.Constant(2 * c)
        case ast.Subscript(value, _, ast.Load()) if ast.unparse(value) != "need":
            yield value
        case ast.AugAssign(target, op, value):
            yield ast.Pass()
            if type(op) in FLIP:
                yield ast.AugAssign(target, FLIP[type(op)](), value)
        case ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.If(test, body, orelse) if "need" not in ast.unparse(test):
            yield from (ast.If(ast.Constant(value), body, orelse) for value in (True, False))
        case ast.Return(ast.Tuple(elts)):
            for i in range(len(elts) - 1):
                yield ast.Return(ast.Tuple([*elts[:i], elts[i + 1], elts[i], *elts[i + 2 :]], ast.Load()))


def places(node: ast.AST, statement: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None], ast.AST]]:
    """Every node inside, what puts another in its place, and the statement that it is in."""
    for field, value in ast.iter_fields(node):
        several = value if isinstance(value, list) else [value]
        for i, child in enumerate(several):
            if isinstance(child, ast.AST):
                put = _put_item(value, i) if isinstance(value, list) else _put_field(node, field)
                here = child if isinstance(child, ast.stmt) else statement
                yield child, put, here
                yield from places(child, here)


def _put_item(values: list[Any], i: int) -> Callable[[ast.AST], None]:
    return lambda new: values.__setitem__(i, new)


def _put_field(node: ast.AST, field: str) -> Callable[[ast.AST], None]:
    return lambda new: setattr(node, field, new)


# ---------------------------------------------------------------------- the backward pass of an op


class _Bare(ast.NodeTransformer):
    """Without annotations and docstrings, in which there is nothing to get wrong."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return ast.copy_location(ast.Assign([node.target], node.value), node) if node.value else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        self.generic_visit(node)
        node.returns, node.decorator_list = None, []
        for a in ast.walk(node.args):
            if isinstance(a, ast.arg):
                a.annotation = None
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
        return node


def source(op: Op) -> tuple[ast.Module, list[ast.AST]]:
    """The definition with the functions of its file that it calls, and those parts of them that are backward."""
    module = sys.modules[op.definition.__module__]
    body = ast.parse(inspect.getsource(module)).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    chosen = [op.name]
    for name in chosen:
        names = {n.id for n in ast.walk(functions[name]) if isinstance(n, ast.Name)} - set(chosen)
        chosen += [n for n in functions if n in names and isinstance(vars(module)[n], FunctionType)]
    bare = {name: _Bare().visit(functions[name]) for name in chosen}
    return ast.Module(list(bare.values()), []), _backward(bare[op.name], list(bare.values()))


def _backward(definition: ast.AST, functions: list[ast.AST]) -> list[ast.AST]:
    """The functions that the forward pass does not call: `backward`, a lambda, and what only these call."""
    inner = [node for f in functions for node in ast.walk(f) if isinstance(node, ast.FunctionDef) and node is not f]
    forward = [definition]
    for f in forward:
        called = {node.id for node in _own(f) if isinstance(node, ast.Name)} - {"backward"}
        forward += [g for g in [*functions, *inner] if g.name in called and g not in forward]
    lambdas = [node for node in _own(definition) if isinstance(node, ast.Lambda)]
    return [f for f in [*lambdas, *inner, *functions] if f not in forward]


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The code of a function without that of the functions inside it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            yield from _own(node)


@dataclass(frozen=True)
class Mutant:
    op: str
    before: str  # the statement, as it is
    after: str  # and as it is in the mutant
    rule: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.op}: {self.before}  →  {self.after}"


def mutants(op: Op) -> list[Mutant]:
    tree, regions = source(op)
    original, made = ast.unparse(tree), {}
    for region in regions:
        for node, put, statement in list(places(region, region)):
            for new in changes(node):
                before = _line(statement)
                put(ast.fix_missing_locations(ast.copy_location(new, node)))
                text = ast.unparse(tree)
                if text not in made and text != original:
                    after = _line(new) if node is statement else _line(statement)
                    made[text] = Mutant(op.name, before, after, _compiled(text, op))
                put(node)
    return list(made.values())


def _line(statement: ast.AST) -> str:
    return ast.unparse(statement).splitlines()[0]


def _compiled(text: str, op: Op) -> Callable[..., Any]:
    namespace = dict(op.definition.__globals__)
    exec(compile("from __future__ import annotations\n" + text, f"<mutant of {op.name}>", "exec"), namespace)
    rule = namespace[op.name]
    namespace[op.name] = op
    return rule  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- the score


def all_ops() -> list[Op]:
    return [op for op in registry.values() if not isinstance(op, Composite)]


def survives(mutant: Mutant) -> bool:
    op = registry[mutant.op]
    return passes_gradient_check(op, mutant.rule) and passes_corners(op, mutant.rule)


if __name__ == "__main__":
    print("made:     one small change each, in the backward pass of one op")
    print("rejected: by the gradient check; by exact values at ties, kinks and infinities")
    print("alive:    rejected by neither (tests/test_mutants.py says why: they are not wrong)")
    print("usual:    of all made, what y.sum() with gain 1 and bias 0 accepts")
    print(f"\n{'op':20}{'made':>8}{'rejected:':>10} gradcheck{'corners':>10}{'alive':>8}{'usual':>8}")
    rows = []
    for op in all_ops():
        made = mutants(op)
        left = [m for m in made if passes_gradient_check(op, m.rule)]
        alive = [m for m in left if passes_corners(op, m.rule)]
        usual = [m for m in made if passes_usual_check(op, m.rule)]
        rows.append((len(made), len(made) - len(left), len(left) - len(alive), len(alive), len(usual)))
        print("{:20}{:8}{:20}{:10}{:8}{:8}".format(op.name, *rows[-1]), flush=True)
        if "-v" in sys.argv:
            print("".join(f"    {m}\n" for m in alive), end="")
    print("{:20}{:8}{:20}{:10}{:8}{:8}".format("all", *np.sum(rows, 0)))
