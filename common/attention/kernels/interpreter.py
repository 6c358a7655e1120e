"""Repairs of Triton's interpreter (TRITON_INTERPRET=1), which runs kernels on a CPU: bf16, numpy 2.4, the order of imports, and its slowest part.

As it comes (3.6 to 3.9) it holds bf16 as raw 16-bit integers: `tl.dot` and elementwise operations work on the bit patterns,
and fp32 is cut off rather than rounded to nearest even as on a GPU. Here bf16 operands are widened to fp32 and results
rounded; a reduction of bf16 raises TypeError, as no kernel should do one. Nothing that runs on a GPU is changed.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.runtime import JITFunction, interpreter

# Triton's own: this package needs torch and triton alone.
np: Any = vars(interpreter)["np"]
Handle: Any = interpreter.TensorHandle


def install() -> None:
    """Once a process; again does nothing."""
    if getattr(interpreter, "_repaired", False):
        return
    interpreter._repaired = True  # type: ignore[attr-defined]
    _interpret_language()
    _repair_bf16(interpreter.InterpreterBuilder)
    _refuse_bf16_reductions(interpreter.ReduceScanOpInterface)
    _repair_index()
    _patch_once()


def widened(bits: Any) -> Any:
    """fp32 of bf16 bit patterns (uint16)."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(x: Any) -> Any:
    """bf16 bit patterns (uint16) nearest to fp32 numbers, halves to even; NaN stays NaN."""
    x = np.asarray(x, np.float32, order="C")
    bits = x.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(x), np.uint16(0x7FC0), nearest.astype(np.uint16))


def _is_bf16(x: Any) -> bool:
    return isinstance(x, Handle) and x.dtype.scalar == tl.bfloat16


def _wide(x: Any) -> Any:
    return Handle(widened(x.data), tl.float32) if _is_bf16(x) else x


def _narrow(x: Any) -> Any:
    return Handle(rounded(x.data), tl.bfloat16) if x.data.dtype == np.float32 else x


def _interpret_language() -> None:
    """`tl.sum` and its like are decorated when triton is imported, which others may have done before the variable was set."""
    for module in (tl, tl.standard, tl.random, tl.math):
        for name, value in list(vars(module).items()):
            if isinstance(value, JITFunction):
                setattr(module, name, interpreter.InterpretedFunction(value.fn))


def _repair_bf16(builder: Any) -> None:
    dot, cast = builder.create_dot, builder.cast_impl

    def create_dot(self: Any, a: Any, b: Any, *rest: Any, **named: Any) -> Any:
        return dot(self, _wide(a), _wide(b), *rest, **named)

    def cast_impl(self: Any, source: Any, wanted: Any) -> Any:
        if wanted.scalar != tl.bfloat16:
            return cast(self, _wide(source), wanted)
        return source if _is_bf16(source) else Handle(rounded(source.data.astype(np.float32)), tl.bfloat16)

    def elementwise(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, *operands: Any, **named: Any) -> Any:
            if any(_is_bf16(x) for x in operands):
                return _narrow(operation(self, *(_wide(x) for x in operands), **named))
            return operation(self, *operands, **named)

        return run

    builder.create_dot, builder.cast_impl = create_dot, cast_impl
    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(builder, name, elementwise(getattr(builder, name)))


def _refuse_bf16_reductions(interface: Any) -> None:
    check = interface.check_tensor

    def check_tensor(self: Any, inputs: Any) -> None:
        if any(isinstance(x, tl.core.tensor) and x.dtype.scalar == tl.bfloat16 for x in inputs):
            raise TypeError("a reduction or scan of bf16: convert to fp32 first")
        check(self, inputs)

    interface.check_tensor = check_tensor


def _repair_index() -> None:
    """Triton 3.6 takes int() of one-element arrays, which numpy 2.4 no longer allows: loops with bounds that were loaded."""
    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.reshape(-1)[0]))

    interpreter._patch_lang_tensor = patch_tensor


def _patch_once() -> None:
    """`triton.language` is patched when a launch begins, and again at each call of a function inside a kernel, which takes a
    third of the time and changes nothing."""
    patch, execute = interpreter._patch_lang, interpreter.GridExecutor.__call__
    done: set[ModuleType] = set()

    def patch_lang(function: Any) -> Any:
        needed = {x for x in function.__globals__.values() if isinstance(x, ModuleType) and x in (tl, tl.core)}
        if needed and needed <= done:
            return interpreter._LangPatchScope()
        done.update(needed)
        return patch(function)

    def call(self: Any, *args: Any, **named: Any) -> Any:
        done.clear()
        return execute(self, *args, **named)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_lang, call
