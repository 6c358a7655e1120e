"""Counts what interpreted kernels load, store and multiply: bytes by kernel and argument, FLOPs by kernel.

These are the bytes that a kernel asks for. What reaches a GPU's main memory is less where its caches hold a tensor that
several programs read, and never less than each tensor once.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from triton.runtime import interpreter

from common.attention.kernels.launch import Launch


@dataclass
class Ledger:
    """loads and stores: bytes by (kernel, argument); products: FLOPs of `tl.dot` by kernel, a multiply-add counting two.

    An argument of several tensors (`lists`) counts each part as ``lists.start`` and so on.
    """

    loads: Counter[tuple[str, str]] = field(default_factory=Counter)
    stores: Counter[tuple[str, str]] = field(default_factory=Counter)
    products: Counter[str] = field(default_factory=Counter)

    def bytes(self, *kernels: str) -> int:
        """Loads and stores of these kernels, of all if none is named."""
        both = [*self.loads.items(), *self.stores.items()]
        return sum(count for (kernel, _), count in both if not kernels or kernel in kernels)


@contextmanager
def counting() -> Iterator[Ledger]:
    """A ledger of all launches inside. Raises RuntimeError where kernels are not interpreted."""
    if not isinstance(_some_kernel(), interpreter.InterpretedFunction):
        raise RuntimeError(  # noqa: TRY004
            "the ledger counts in Triton's interpreter: set TRITON_INTERPRET=1 before triton is imported"
        )
    ledger, builder = Ledger(), interpreter.InterpreterBuilder
    originals = {name: getattr(builder, name) for name in ("create_masked_load", "create_masked_store", "create_dot")}
    run, now = Launch.run, _Now()

    def run_counted(launch: Launch) -> None:
        now.kernel, now.places = launch.kernel.__name__, list(_places(launch.arguments))
        run(launch)

    def load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        now.count(ledger.loads, pointers, mask)
        return originals["create_masked_load"](self, pointers, mask, *rest)

    def store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        now.count(ledger.stores, pointers, mask)
        return originals["create_masked_store"](self, pointers, value, mask, *rest)

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        ledger.products[now.kernel] += 2 * a.data.size * b.data.shape[-1]
        return originals["create_dot"](self, a, b, *rest)

    patched = {"create_masked_load": load, "create_masked_store": store, "create_dot": dot}
    try:
        Launch.run = run_counted  # type: ignore[method-assign]
        for name, function in patched.items():
            setattr(builder, name, function)
        yield ledger
    finally:
        Launch.run = run  # type: ignore[method-assign]
        for name, function in originals.items():
            setattr(builder, name, function)


@dataclass
class _Now:
    """The launch that runs: its kernel, and first byte, end and name of each tensor."""

    kernel: str = ""
    places: list[tuple[int, int, str]] = field(default_factory=list)

    def count(self, into: Counter[tuple[str, str]], pointers: Any, mask: Any) -> None:
        addresses = pointers.data[
            mask.data.astype(bool)
        ]  # integers, where a scalar took part: numpy would count with them
        if not addresses.size:
            return
        size = pointers.get_element_ty().primitive_bitwidth // 8
        first = int(addresses.flat[0])
        name = next((name for start, end, name in self.places if start <= first < end), "elsewhere")
        into[self.kernel, name] += addresses.size * size


def _places(arguments: dict[str, Any], prefix: str = "") -> Iterator[tuple[int, int, str]]:
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes(), prefix + name
        elif isinstance(value, tuple) and hasattr(value, "pointer"):
            yield from _places({name: value.pointer}, prefix)  # type: ignore[attr-defined]
        elif isinstance(value, tuple) and hasattr(value, "_asdict"):
            yield from _places(value._asdict(), f"{prefix}{name}.")  # type: ignore[attr-defined]


def _some_kernel() -> Any:
    from common.attention.kernels.flash import forward_kernel

    return forward_kernel
