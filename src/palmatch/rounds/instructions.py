"""Instructions of the processor that numba has no word for, for compiled loops.

Where an array and an index are asked for, the array has one dimension, and the index is one of its own: it is not
checked, and does not count from the end.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic


def _prefetch(_: Any, array: Any, index: Any) -> Any:
    """Ask memory for an element of an array that is going to be read soon.

    A read of what is not in a cache holds up what comes after it sooner or later; a request does not.
    """
    return types.void(array, index), _request


def _request(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    pointer = _pointer(context, builder, signature, arguments)
    address, number = builder.bitcast(pointer, ir.IntType(8).as_pointer()), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    # To be read, to be kept in all caches, data.
    builder.call(function, [address, number(0), number(3), number(1)])
    return context.get_dummy_value()


def _lowest_bit(_: Any, value: Any) -> Any:
    """Return the number of the lowest bit that is set in an integer of 64 bits, which must not be 0."""
    return types.int64(value), _count_zeros


def _count_zeros(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
    return builder.cttz(arguments[0], ir.IntType(1)(1))


def _add_for_all(_: Any, array: Any, index: Any, amount: Any) -> Any:
    """Add to an element of an int64 array that several threads see, and return what it was before."""
    return types.int64(array, index, amount), _add


def _add(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.atomic_rmw("add", _pointer(context, builder, signature, arguments), arguments[2], "seq_cst")


def _seen_by_all(_: Any, array: Any, index: Any) -> Any:
    """Return an element of an int64 array as the last thread that changed it left it."""
    return types.int64(array, index), _see


def _see(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.load_atomic(_pointer(context, builder, signature, arguments), "seq_cst", 8)


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind = signature.args[0]
    structure = context.make_array(kind)(context, builder, arguments[0])
    indices = [arguments[1]]
    return cgutils.get_item_pointer(context, builder, kind, structure, indices, wraparound=False)  # type: ignore[no-untyped-call]


# What compiled code calls; what is above is called while it is compiled.
prefetch: Any = intrinsic(_prefetch)
lowest_bit: Any = intrinsic(_lowest_bit)
add_for_all: Any = intrinsic(_add_for_all)
seen_by_all: Any = intrinsic(_seen_by_all)
