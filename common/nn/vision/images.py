"""Images as the models take them, and as grids of patches."""

from torch import Tensor


def check_images(images: Tensor, colours: int) -> None:
    if images.ndim != 4 or images.shape[1] != colours or not images.is_floating_point():
        raise ValueError(
            f"images: got {images.dtype} {tuple(images.shape)}, expected floating point (batch, {colours}, height, width)"
        )


def patches(images: Tensor, side: int) -> Tensor:
    """(B, colours, H, W) -> (B, H / side, W / side, colours * side^2): each patch by colours, then row by row (Dosovitskiy
    et al. 2021, section 3.1)."""
    grid = images.unflatten(2, (-1, side)).unflatten(4, (-1, side))  # (B, colours, H / side, side, W / side, side)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3)


def windows(x: Tensor, side: int) -> Tensor:
    """(B, H, W, C) -> (B * windows, side^2, C): by images, then windows row by row, then pixels row by row."""
    grid = x.unflatten(1, (-1, side)).unflatten(3, (-1, side))  # (B, H / side, side, W / side, side, C)
    return grid.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def from_windows(x: Tensor, side: int, height: int, width: int) -> Tensor:
    """(B * windows, side^2, C) -> (B, H, W, C), back from `windows`."""
    grid = x.unflatten(1, (side, side)).unflatten(0, (-1, height // side, width // side))
    return grid.transpose(2, 3).flatten(3, 4).flatten(1, 2)
