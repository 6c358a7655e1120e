"""Tensors of which each process of a sharded training (FSDP) holds a part."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself, or all of it where each process has a shard: then every process must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
