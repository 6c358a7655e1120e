"""Models of equal size, so that their times compare."""

from collections.abc import Mapping

from torch import nn


def equal_sizes(models: Mapping[str, nn.Module]) -> dict[str, int]:
    """Parameters of each. Raises ValueError where one has over a tenth more than another."""
    sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    if max(sizes.values()) > 1.1 * min(sizes.values()):
        raise ValueError(f"models: got sizes {sizes}, expected none to be over a tenth larger than another")
    return sizes
