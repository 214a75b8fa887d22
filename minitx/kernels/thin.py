"""Products of few rows: C += A B for 1 or 4 rows of A, with all of C in registers. The shape of a decode step.

The tile of tile.py has 8 rows. One new token has one, and 7 of 8 multiply-adds would be for nothing; what counts then
is that B (the weights, or keys and values) goes by once, in wide lines.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from minitx.kernels.compile import inline, intrinsic
from minitx.kernels.pointer import i32, i64, insert_function, size_of
from minitx.kernels.tile import BYTES


def _thin(rows: int, vectors: int) -> Any:
    @intrinsic
    def thin(typingctx: Any, like: Any, k: Any, a: Any, a_row: Any, b: Any, b_step: Any, c: Any, c_row: Any) -> Any:
        """C += A B: A (rows, k) at address a, B (k, vectors) with rows b_step apart, C (rows, vectors); k >= 1.

        Each number of C is one chain of multiply-adds that begins with what stands there, in the order of k.
        """

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _, k, a, a_row, b, b_step, c, c_row = args
            scalar = context.get_value_type(signature.args[0])
            size = signature.args[0].bitwidth // 8
            lanes = BYTES // size
            vector = ir.VectorType(scalar, lanes)
            fma = insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{lanes}f{size * 8}"
            )
            a, b, c = (builder.inttoptr(x, scalar.as_pointer()) for x in (a, b, c))
            undefined = ir.Constant(vector, ir.Undefined)
            every = ir.Constant(ir.VectorType(i32, lanes), [0] * lanes)

            def vector_at(base: Any, j: int) -> Any:
                return builder.bitcast(builder.gep(base, [i64(j * lanes)]), vector.as_pointer())

            a_rows = [builder.gep(a, [builder.mul(a_row, i64(r))]) for r in range(rows)]
            c_rows = [builder.gep(c, [builder.mul(c_row, i64(r))]) for r in range(rows)]
            start = [[builder.load(vector_at(c_r, j), align=size) for j in range(vectors)] for c_r in c_rows]
            before, loop, after = builder.block, builder.append_basic_block("p"), builder.append_basic_block("store")
            builder.branch(loop)
            builder.position_at_end(loop)
            p = builder.phi(i64)
            acc = [[builder.phi(vector) for _ in range(vectors)] for _ in range(rows)]
            b_row = builder.gep(b, [builder.mul(p, b_step)])
            bs = [builder.load(vector_at(b_row, j), align=size) for j in range(vectors)]
            new = []
            for r in range(rows):
                x = builder.load(builder.gep(a_rows[r], [p]))
                x = builder.shuffle_vector(builder.insert_element(undefined, x, i32(0)), undefined, every)
                new.append([builder.call(fma, [x, bs[j], acc[r][j]]) for j in range(vectors)])
            p_next = builder.add(p, i64(1))
            builder.cbranch(builder.icmp_signed("<", p_next, k), loop, after)
            p.add_incoming(i64(0), before)
            p.add_incoming(p_next, loop)
            for r in range(rows):
                for j in range(vectors):
                    acc[r][j].add_incoming(start[r][j], before)
                    acc[r][j].add_incoming(new[r][j], loop)
            builder.position_at_end(after)
            for r in range(rows):
                for j in range(vectors):
                    builder.store(new[r][j], vector_at(c_rows[r], j), align=size)
            return context.get_dummy_value()

        return types.void(like, *[types.int64] * 7), codegen

    return thin


thin_4x4, thin_4x2, thin_4x1 = _thin(4, 4), _thin(4, 2), _thin(4, 1)
thin_1x4, thin_1x2, thin_1x1 = _thin(1, 4), _thin(1, 2), _thin(1, 1)


@inline
def add_product(like, m, k, n, a, a_row, b, b_step, c, c_row):
    """C += A B: (m, k) (k, n), n a multiple of one vector."""
    size = size_of(like)
    lanes = BYTES // size
    i = 0
    while i < m:
        rows = 4 if i + 4 <= m else 1
        a_at, j = a + i * a_row * size, 0
        while j < n:
            b_at, c_at, left = b + j * size, c + (i * c_row + j) * size, n - j
            vectors = 4 if left >= 4 * lanes else 2 if left >= 2 * lanes else 1
            if rows == 4 and vectors == 4:
                thin_4x4(like, k, a_at, a_row, b_at, b_step, c_at, c_row)
            elif rows == 4 and vectors == 2:
                thin_4x2(like, k, a_at, a_row, b_at, b_step, c_at, c_row)
            elif rows == 4:
                thin_4x1(like, k, a_at, a_row, b_at, b_step, c_at, c_row)
            elif vectors == 4:
                thin_1x4(like, k, a_at, a_row, b_at, b_step, c_at, c_row)
            elif vectors == 2:
                thin_1x2(like, k, a_at, a_row, b_at, b_step, c_at, c_row)
            else:
                thin_1x1(like, k, a_at, a_row, b_at, b_step, c_at, c_row)
            j += vectors * lanes
        i += rows
