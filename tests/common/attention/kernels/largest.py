"""What a call makes at most."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """The largest tensor that anything makes, in elements (bytes, where the interpreter copies a tensor)."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.size = max(self.size, result.numel())
        return result
