"""Numbers in memory that several threads read and write: each operation is one step that no other thread interrupts.

Who reads, with `load`, what another thread has written here also finds everything which that thread wrote before.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types

from minitx.kernels.compile import intrinsic
from minitx.kernels.pointer import i64, insert_function

PAUSES = platform.machine().lower() in ("x86_64", "amd64")


def _at(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, i64.as_pointer())


@intrinsic
def load(typingctx: Any, at: Any) -> Any:
    """The integer at an address."""
    return types.int64(types.int64), lambda context, builder, signature, args: builder.load_atomic(
        _at(builder, args[0]), "seq_cst", 8
    )


@intrinsic
def store(typingctx: Any, at: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _at(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def add(typingctx: Any, at: Any, x: Any) -> Any:
    """Add x to the integer at an address; returns what it was."""
    return types.int64(types.int64, types.int64), lambda context, builder, signature, args: builder.atomic_rmw(
        "add", _at(builder, args[0]), args[1], "seq_cst"
    )


@intrinsic
def swap(typingctx: Any, at: Any, x: Any) -> Any:
    """Put x there; returns what it was."""
    return types.int64(types.int64, types.int64), lambda context, builder, signature, args: builder.atomic_rmw(
        "xchg", _at(builder, args[0]), args[1], "seq_cst"
    )


@intrinsic
def replace(typingctx: Any, at: Any, before: Any, after: Any) -> Any:
    """Put `after` there if `before` is there now; says whether."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.cmpxchg(_at(builder, args[0]), args[1], args[2], "acq_rel", "acquire")
        return builder.extract_value(found, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typingctx: Any) -> Any:
    """A moment's rest in a loop that waits: some 10 ns, in which the core does other things."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if PAUSES:
            builder.call(insert_function(builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), codegen
