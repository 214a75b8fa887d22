"""The register tile: the one piece of machine code that all matrix products (and attention) are made of.

(Below it: squares turned, a part of a vector, single steps on vectors.) In float32 with AVX-512 it looks like this:

                     row p of B, at b + p b_step
                   [ b₀ b₁ ...  b₁₅ | b₁₆ ...    b₃₁ ]   2 vectors are loaded ...
    column p               ↓                ↓
    of A           ┌────────────────┬────────────────┐
      row 0  a₀ →  │ acc₀₀ += a₀ b  │ acc₀₁ += a₀ b  │   ... and meet each of 8 numbers of A,
      row 1  a₁ →  │ acc₁₀ += a₁ b  │ acc₁₁ += a₁ b  │       copied to all lanes of a vector:
        ...        │      ...       │      ...       │       16 fused multiply-adds for 10 loads
      row 7  a₇ →  │ acc₇₀ += a₇ b  │ acc₇₁ += a₇ b  │
                   └────────────────┴────────────────┘
    (aᵣ is at a + r a_row + p a_step), and again for p = 0, 1, ..., k - 1; then C = acc, or C = start + acc

The 16 accumulators (ROWS x 2 vectors) never leave the CPU's registers while p runs. A compiler does not find this form
by itself: the usual three loops reach a third of it. Each acc is one chain of multiply-adds in the order of p, whatever
the place of the tile in the matrix: that is why results do not depend on what else is being computed.

Memory is given by addresses (pointer.py) and steps in elements; the numbers in a row of B, of C and of `start` must be
neighbours. In float64 a vector has 8 numbers; with AVX2 the tile has 6 rows, and vectors are half as wide.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target

from minitx.kernels.compile import intrinsic
from minitx.kernels.pointer import i32, i64, insert_function
from minitx.kernels.say import once


def vector_bits() -> int:
    """Width of the CPU's vectors with fused multiply-add: 512 (AVX-512), 256 (AVX2), 0 for anything else."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    if "+avx512f" in features:
        return 512
    if "+avx2" in features and "+fma" in features:
        return 256
    # A loop over single numbers would run anywhere; NumPy's product is faster: it uses the vectors that there are.
    once("this CPU has neither AVX-512 nor AVX2: matrix products and attention are left to NumPy")
    return 0


star_args: Any = types.StarArgTuple
BITS = vector_bits()
VECTORS = 2  # vectors in a row of the tile
ROWS = 8 if BITS != 256 else 6  # AVX-512 has 32 registers: 16 + 2 + what is copied. AVX2 has 16: 12 + 2 + 1
BYTES = (BITS or 512) // 8  # one vector


def everywhere(builder: Any, x: Any, lanes: int) -> Any:
    """One number in all lanes of a vector."""
    undefined = ir.Constant(ir.VectorType(x.type, lanes), ir.Undefined)
    one = builder.insert_element(undefined, x, i32(0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(i32, lanes), [0] * lanes))


@intrinsic
def tile(
    typingctx: Any, like: Any, k: Any, a: Any, a_row: Any, a_step: Any, b: Any, b_step: Any,
    start: Any, start_row: Any, c: Any, c_row: Any, rows: Any,
) -> Any:  # fmt: skip
    """C[:rows] = start + A B, for A (rows, k) at address a, B (k, 2 vectors) at b, C (rows, 2 vectors) at c.

    Element (r, p) of A stands at a + r * a_row + p * a_step; row p of B at b + p * b_step; row r of `start` at
    start + r * start_row (start_row 0: one row for all, a bias; start = 0: nothing is added). k >= 1, and `like` is any
    number of the matrices' type.
    """
    return types.void(like, *[types.int64] * 11), _tile_code(2)


@intrinsic
def half_tile(
    typingctx: Any, like: Any, k: Any, a: Any, a_row: Any, a_step: Any, b: Any, b_step: Any,
    start: Any, start_row: Any, c: Any, c_row: Any, rows: Any,
) -> Any:  # fmt: skip
    """The same, one vector wide: for what is left at the right edge."""
    return types.void(like, *[types.int64] * 11), _tile_code(1)


def _tile_code(vectors: int) -> Any:
    """The tile in LLVM's instructions.

    gep(x, [i]) is &x[i]; inttoptr and bitcast give an address another type. A block runs to its end and jumps (branch,
    cbranch). phi is a variable set on entering a block: its value depends on the block one comes from, and add_incoming
    says how.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, k, a, a_row, a_step, b, b_step, start, start_row, c, c_row, rows = args
        scalar = context.get_value_type(signature.args[0])
        size = signature.args[0].bitwidth // 8
        lanes = BYTES // size
        vector = ir.VectorType(scalar, lanes)
        fma_type = ir.FunctionType(vector, [vector] * 3)
        fma = insert_function(builder.module, fma_type, f"llvm.fma.v{lanes}f{size * 8}")

        def element(base: Any, offset: Any) -> Any:
            return builder.gep(base, [offset])

        def vector_at(base: Any, j: int) -> Any:
            return builder.bitcast(builder.gep(base, [i64(j * lanes)]), vector.as_pointer())

        a, b, start, c = (builder.inttoptr(x, scalar.as_pointer()) for x in (a, b, start, c))
        # A tile with fewer rows reads its last row again instead of what lies behind it, and stores nothing of that.
        last = builder.sub(rows, i64(1))
        row_or_last = [builder.select(builder.icmp_signed("<", i64(r), last), i64(r), last) for r in range(ROWS)]
        a_rows = [element(a, builder.mul(row, a_row)) for row in row_or_last]

        # for p in range(k), asked at the end of each turn:
        before, loop, after = builder.block, builder.append_basic_block("p"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        p = builder.phi(i64)
        acc = [[builder.phi(vector) for _ in range(vectors)] for _ in range(ROWS)]
        a_offset, b_row = builder.mul(p, a_step), element(b, builder.mul(p, b_step))
        bs = [builder.load(vector_at(b_row, j), align=size) for j in range(vectors)]
        new = []
        for r in range(ROWS):
            x = everywhere(builder, builder.load(element(a_rows[r], a_offset)), lanes)
            new.append([builder.call(fma, [x, bs[j], acc[r][j]]) for j in range(vectors)])
        p_next = builder.add(p, i64(1))
        builder.cbranch(builder.icmp_signed("<", p_next, k), loop, after)
        p.add_incoming(i64(0), before)
        p.add_incoming(p_next, loop)
        for r in range(ROWS):
            for j in range(vectors):
                acc[r][j].add_incoming(ir.Constant(vector, None), before)  # zeros
                acc[r][j].add_incoming(new[r][j], loop)

        # C = acc, or start + acc, of which rows that are not there are again the last one
        builder.position_at_end(after)
        adding, storing = builder.append_basic_block("add"), builder.append_basic_block("store")
        builder.cbranch(builder.icmp_signed("==", args[7], i64(0)), storing, adding)  # args[7]: `start`, the integer
        builder.position_at_end(adding)
        added = []
        for r in range(ROWS):
            row = element(start, builder.mul(row_or_last[r], start_row))
            added.append([builder.fadd(builder.load(vector_at(row, j), align=size), new[r][j]) for j in range(vectors)])
        builder.branch(storing)
        builder.position_at_end(storing)
        totals = [[builder.phi(vector) for _ in range(vectors)] for _ in range(ROWS)]
        for r in range(ROWS):
            for j in range(vectors):
                totals[r][j].add_incoming(new[r][j], after)
                totals[r][j].add_incoming(added[r][j], adding)

        def store(r: int) -> None:
            to = element(c, builder.mul(c_row, i64(r)))
            for j in range(vectors):
                builder.store(totals[r][j], vector_at(to, j), align=size)

        # A whole tile needs no question for every row.
        with builder.if_else(builder.icmp_signed("==", rows, i64(ROWS))) as (whole, some):
            with whole:
                for r in range(ROWS):
                    store(r)
            with some:
                for r in range(ROWS - 1):
                    with builder.if_then(builder.icmp_signed("<", i64(r), rows)):
                        store(r)
        return context.get_dummy_value()

    return codegen


@intrinsic
def transpose(
    typingctx: Any, like: Any, source: Any, source_row: Any, target: Any, target_row: Any, factor: Any
) -> Any:
    """A square block, one vector wide and high, from rows to columns, within registers; times a factor.

    By halves: exchanging numbers between neighbouring rows transposes 2 x 2 blocks; exchanging pairs, then fours,
    then eights between rows 2, 4, 8 apart does the same to blocks of blocks.

        abcd        aecg        aeim
        efgh   →    bfdh   →    bfjn        first rows 0, 1 and rows 2, 3 exchange single numbers,
        ijkl        imko        cgko        then rows 0, 2 and rows 1, 3 exchange pairs
        mnop        jnlp        dhlp
    """
    signature = types.void(like, *[types.int64] * 4, like)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, source, source_row, target, target_row, factor = args
        scalar = context.get_value_type(signature.args[0])
        size = signature.args[0].bitwidth // 8
        lanes = BYTES // size
        vector = ir.VectorType(scalar, lanes)
        source, target = (builder.inttoptr(x, scalar.as_pointer()) for x in (source, target))

        def row(base: Any, step: Any, r: int) -> Any:
            return builder.bitcast(builder.gep(base, [builder.mul(step, i64(r))]), vector.as_pointer())

        factor = everywhere(builder, factor, lanes)
        rows = [builder.fmul(builder.load(row(source, source_row, r), align=size), factor) for r in range(lanes)]
        width = 1
        while width < lanes:
            # Odd blocks of row r change places with even blocks of row r + width. (Places from `lanes` on are in y.)
            low = [i if not i & width else lanes + i - width for i in range(lanes)]
            high = [i + width if not i & width else lanes + i for i in range(lanes)]
            for r in range(lanes):
                if not r & width:
                    x, y = rows[r], rows[r + width]
                    for to, places in ((r, low), (r + width, high)):
                        pick = ir.Constant(ir.VectorType(i32, lanes), places)
                        rows[to] = builder.shuffle_vector(x, y, pick)
            width *= 2
        for r in range(lanes):
            builder.store(rows[r], row(target, target_row, r), align=size)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def part(typingctx: Any, like: Any, source: Any, n: Any, target: Any, m: Any) -> Any:
    """One vector: the first n numbers from `source`, zeros behind them; its first m numbers are written to `target`.

    What lies beyond is neither read nor written.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, source, n, target, m = args
        scalar = context.get_value_type(signature.args[0])
        size = signature.args[0].bitwidth // 8
        lanes = BYTES // size
        vector, flags = ir.VectorType(scalar, lanes), ir.VectorType(ir.IntType(1), lanes)
        places = ir.Constant(ir.VectorType(i64, lanes), list(range(lanes)))

        def first(count: Any) -> Any:  # True for the first `count` lanes
            return builder.icmp_signed("<", places, everywhere(builder, count, lanes))

        at, void = vector.as_pointer(), ir.VoidType()
        kind = f"v{lanes}f{size * 8}.p0v{lanes}f{size * 8}"
        loads = ir.FunctionType(vector, [at, i32, flags, vector])
        load = insert_function(builder.module, loads, f"llvm.masked.load.{kind}")
        stores = ir.FunctionType(void, [vector, at, i32, flags])
        store = insert_function(builder.module, stores, f"llvm.masked.store.{kind}")
        x = builder.call(load, [builder.inttoptr(source, at), i32(size), first(n), ir.Constant(vector, None)])
        builder.call(store, [x, builder.inttoptr(target, at), i32(size), first(m)])
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 4), codegen


def on_vectors(vectors: int, build: Any, doc: str) -> Any:
    """One step on whole vectors: f(like, at_0, ..., numbers ...) stores build(builder, x_0, ..., numbers ...) at at_0.

    x_0, ... are the vectors at the first addresses; a number comes as a vector full of it. The compiler can vectorise a
    loop by itself, but each begins with checks (do arrays overlap, how many vectors are left) that take longer than one
    vector's work.
    """

    def step(typingctx: Any, like: Any, *rest: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            size = signature.args[0].bitwidth // 8
            lanes = BYTES // size
            pointer = ir.VectorType(context.get_value_type(signature.args[0]), lanes).as_pointer()
            values = [builder.extract_value(args[1], i) for i in range(len(rest))]  # numba passes *rest as one tuple
            at = [builder.inttoptr(x, pointer) for x in values[:vectors]]
            numbers = [everywhere(builder, x, lanes) for x in values[vectors:]]
            result = build(builder, *(builder.load(x, align=size) for x in at), *numbers)
            builder.store(result, at[0], align=size)
            return context.get_dummy_value()

        kinds = (types.int64,) * vectors + (like,) * (len(rest) - vectors)
        return types.void(like, star_args.from_types(kinds)), codegen

    step.__doc__ = doc
    return intrinsic(step)


copy_vector = on_vectors(2, lambda build, x, y: y, "x = y")
zero_vector = on_vectors(1, lambda build, x: ir.Constant(x.type, None), "x = 0")
scale_vector = on_vectors(1, lambda build, x, factor: build.fmul(x, factor), "x *= factor")
scaled_vector = on_vectors(2, lambda build, x, y, factor: build.fmul(y, factor), "x = y * factor")
