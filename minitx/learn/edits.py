"""What kind of mistake an edit is: `dy.sum()  →  dy.mean()` is a mean for a sum. The right code is not told."""
from __future__ import annotations

import ast

from minitx.learn.finding import Finding

SUM_MEAN = {("sum", "mean"): "mean-for-sum", ("mean", "sum"): "sum-for-mean"}


def described(edit: str) -> Finding:
    """A finding from "the statement as it is  →  as it is in the mutant"."""
    before, after = edit.split("  →  ")
    key, piece = kind(_parsed(before), _parsed(after))
    return Finding(f"edit-{key}", {"where": target(before), "piece": piece})


def target(statement: str) -> str:
    """What the statement makes: `dx`, or `return`."""
    tree = _parsed(statement)
    match tree:
        case ast.Assign([one, *_]) | ast.AugAssign(one):
            return ast.unparse(one)
        case ast.If(test):
            return f"if {ast.unparse(test)}"
        case ast.Return():
            return "return"
    return "backward"


def _parsed(statement: str) -> ast.AST:
    """The first line of a statement; a heading like `if x:` gets a body."""
    text = statement.strip()
    return ast.parse(text + (" pass" if text.endswith(":") else "")).body[0]


def kind(before: ast.AST, after: ast.AST) -> tuple[str, str]:
    """The kind of mistake, and the piece of code it is about where that is a mere name."""
    if isinstance(before, ast.If) and isinstance(after, ast.If) and isinstance(after.test, ast.Constant):
        return "branch", ""
    a, b = smallest(before, after)
    match a, b:
        case ast.AugAssign() | ast.Expr(), ast.Pass():
            return "statement", ""
        case ast.AugAssign(_, x, _), ast.AugAssign(_, y, _):
            return _operator(x, y), ""
        case ast.BinOp(left, x, right), ast.BinOp(left2, y, right2) if _equal(left, left2) and _equal(right, right2):
            return _operator(x, y), ""
        case (ast.Add() | ast.Sub() | ast.Mult() | ast.Div()), ast.operator():
            return _operator(a, b), ""
        case ast.BinOp(left, _, right), ast.BinOp(left2, _, right2) if _equal(left, right2) and _equal(right, left2):
            return "operands", ""
        case ast.BinOp(left, x, right), _ if _equal(left, b) or _equal(right, b):
            dropped = right if _equal(left, b) else left
            return ("term" if isinstance(x, ast.Add | ast.Sub) else "factor") + _some(dropped), _name(dropped)
        case ast.UnaryOp(ast.USub(), _), _:
            return "sign", ""
        case (ast.UnaryOp(), _) | (ast.Compare(), _) | (ast.BoolOp(), _) | (ast.cmpop(), _) | (ast.boolop(), _):
            return "condition", ""
        case ast.IfExp(), _:
            return "branch", ""
        case ast.Constant(int()), ast.Constant(int()):
            return "index", ""
        case ast.Constant(), ast.Constant():
            return "number", ""
        case ast.Attribute(_, x), ast.Attribute(_, y):
            return SUM_MEAN.get((x, y), "max-min"), ""
        case ast.Attribute(_, "T"), _:
            return "call", "T"
        case ast.Call(ast.Attribute(_, "where")), _:
            return "where", ""
        case ast.Call(_, _, more), ast.Call(_, _, fewer) if len(more) > len(fewer):
            return "keepdims", ""
        case ast.Call(ast.Attribute(_, name)), _:
            return "call", name
        case ast.Subscript(), _:
            return "subscript", ""
        case (ast.Tuple(), ast.Tuple()) | (ast.Return(), ast.Return()):
            return "order", ""
    return "other", ""


def smallest(a: ast.AST, b: ast.AST) -> tuple[ast.AST, ast.AST]:
    """The innermost pair in which the two differ."""
    if type(a) is not type(b):
        return a, b
    pairs = []
    for field in a._fields:
        x, y = getattr(a, field), getattr(b, field)
        if isinstance(x, list) and isinstance(y, list):
            if len(x) != len(y):
                return a, b
            pairs += list(zip(x, y))
        else:
            pairs.append((x, y))
    different = [(x, y) for x, y in pairs if not _equal(x, y)]
    if len(different) == 1 and isinstance(different[0][0], ast.AST) and isinstance(different[0][1], ast.AST):
        return smallest(*different[0])
    return a, b


def _equal(a: object, b: object) -> bool:
    if isinstance(a, ast.AST) and isinstance(b, ast.AST):
        return ast.dump(a) == ast.dump(b)
    return a == b


def _operator(x: ast.AST, y: ast.AST) -> str:
    if isinstance(x, ast.Add | ast.Sub):
        return "sign"
    return "divided" if isinstance(y, ast.Div) else "multiplied"


def _name(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute | ast.Constant) else ""


def _some(node: ast.AST) -> str:
    return "" if _name(node) else "-some"
