"""How much memory a call needs at its peak, beyond what was there before it."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary


class StorageMeter(TorchDispatchMode):
    """Counts the bytes of each storage that an operation creates, until the storage is freed: `live`, and its `peak`.

    A storage counts once however many views it has; what an operation is given was there before, or is counted already.
    Not seen: scratch that one operation takes and gives back, what compiled code takes, and, in inference mode, what
    happens inside a composite operation such as matmul.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known = WeakIdKeyDictionary(ref_type=weakref.ref)  # type: ignore[arg-type]  its own type is for tensors

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is not torch.ops.aten.lift_fresh.default:  # which is given what torch.tensor has just made
            for storage in _storages((args, kwargs)):
                self._known[storage] = True
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage not in self._known:
                self._known[storage] = True
                self.live += storage.nbytes()
                weakref.finalize(storage, self._free, storage.nbytes())
        self.peak = max(self.peak, self.live)
        return result

    def _free(self, size: int) -> None:
        self.live -= size


def _storages(tree: object) -> Iterator[torch.UntypedStorage]:
    return (leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


def peak_bytes(function: Callable[..., object], inputs: Sequence[Tensor] = (), device: str = "cpu") -> int:
    """Peak bytes of function(*inputs), the inputs and all else that existed before not counted; its result is.

    device: that of the inputs, where there are any. On a GPU by the allocator, reset before and read after; on a CPU by
    counting live storages. Call the function once before: what it keeps for later calls (workspaces, lists of blocks) is no
    part of what each call needs.
    """
    where = inputs[0].device if inputs else torch.device(device)
    if where.type == "cuda":
        torch.cuda.synchronize(where)
        torch.cuda.reset_peak_memory_stats(where)
        before = torch.cuda.memory_allocated(where)
        function(*inputs)
        torch.cuda.synchronize(where)
        return torch.cuda.max_memory_allocated(where) - before
    with StorageMeter() as meter:
        function(*inputs)
    return meter.peak
