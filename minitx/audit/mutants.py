"""Wrong backward passes made by a machine: one small change at one place of the backward pass of one function.

    >>> from minitx.ops import softmax
    >>> mutant = mutants(softmax)[4]
    >>> mutant.edit.split("  →  ")
    ['return y * (dy - (dy * y).sum(axis, keepdims=True))', 'return y * dy']

and `with softmax.using(mutant.rule):` softmax has that backward pass.

What of these the checks reject: minitx/audit/score.py.
"""
from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

from minitx.op import Op

Rule = Callable[..., Any]  # arrays → (value, backward)


class Mutant(NamedTuple):
    name: str  # of the function
    edit: str  # "the statement as it is  →  as it is in the mutant"
    rule: Rule

    def __str__(self) -> str:
        return f"{self.name}: {self.edit}"


def mutants(f: Op | Rule) -> list[Mutant]:
    """All that can be made of an op, or of a rule on arrays as one is written for `@op`: its forward pass is kept.

    The source is read from the file in which the function stands; functions of that file that only backward calls are
    changed too. Two mutants never have the same code.
    """
    tree, regions = _source(_definition(f))
    original, made = ast.unparse(tree), dict[str, Mutant]()
    for region in regions:
        for node, put, statement in list(_places(region, region)):
            for new in _changes(node):
                before = _line(statement)
                put(ast.fix_missing_locations(ast.copy_location(new, node)))
                text = ast.unparse(tree)
                if text not in made and text != original:
                    after = _line(new) if node is statement else _line(statement)
                    made[text] = Mutant(_definition(f).__name__, f"{before}  →  {after}", _compiled(text, f))
                put(node)
    return list(made.values())


def _definition(f: Op | Rule) -> FunctionType:
    definition = f.definition if isinstance(f, Op) else f
    if not isinstance(definition, FunctionType):
        raise TypeError(f"mutants are made of an op or a plain function, not of {f!r:.60}")
    return definition


def _line(statement: ast.AST) -> str:
    return ast.unparse(statement).splitlines()[0]


def _compiled(text: str, f: Op | Rule) -> Rule:
    definition = _definition(f)
    name, namespace = definition.__name__, dict(definition.__globals__)
    exec(compile("from __future__ import annotations\n" + text, f"<mutant of {name}>", "exec"), namespace)
    rule: Rule = namespace[name]
    namespace[name] = f
    return rule


# ---------------------------------------------------------------------- one small change

FLIP: dict[type[ast.AST], Any] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
SWAP = {"sum": "mean", "mean": "sum", "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
DROP = {"sum", "mean", "T", "swapaxes", "transpose", "reshape", "exp", "log", "sqrt", "tanh", "abs", "clip"}


def _changes(node: ast.AST) -> Iterator[ast.AST]:
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


def _places(node: ast.AST, statement: ast.AST) -> Iterator[tuple[ast.AST, Callable[[ast.AST], None], ast.AST]]:
    """Every node inside, what puts another in its place, and the statement that it is in."""
    for field, value in ast.iter_fields(node):
        several = value if isinstance(value, list) else [value]
        for i, child in enumerate(several):
            if isinstance(child, ast.AST):
                put = _put_item(value, i) if isinstance(value, list) else _put_field(node, field)
                here = child if isinstance(child, ast.stmt) else statement
                yield child, put, here
                yield from _places(child, here)


def _put_item(values: list[Any], i: int) -> Callable[[ast.AST], None]:
    return lambda new: values.__setitem__(i, new)


def _put_field(node: ast.AST, field: str) -> Callable[[ast.AST], None]:
    return lambda new: setattr(node, field, new)


# ---------------------------------------------------------------------- the backward pass of a function


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


def _source(definition: FunctionType) -> tuple[ast.Module, list[ast.AST]]:
    """The definition with the functions of its file that it calls, and those parts of them that are backward."""
    body = ast.parse("".join(linecache.getlines(inspect.getsourcefile(definition) or ""))).body
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    if definition.__name__ not in functions:
        raise ValueError(f"mutants: {definition.__name__} is no function at the top level of a file")
    chosen = [definition.__name__]
    for name in chosen:
        names = {n.id for n in ast.walk(functions[name]) if isinstance(n, ast.Name)} - set(chosen)
        chosen += [n for n in functions if n in names and isinstance(definition.__globals__[n], FunctionType)]
    bare: dict[str, ast.FunctionDef] = {name: _Bare().visit(functions[name]) for name in chosen}
    return ast.Module(list(bare.values()), []), _backward(bare[definition.__name__], list(bare.values()))


def _backward(definition: ast.FunctionDef, functions: list[ast.FunctionDef]) -> list[ast.AST]:
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
