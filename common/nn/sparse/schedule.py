"""Windows and dilations over the layers (Beltagy et al. 2020, section 4.1)."""

from collections.abc import Sequence
from typing import Literal

Growth = Literal["linear", "doubling"]


def windows(lowest: int, highest: int | None, growth: Growth, layers: int) -> list[int]:
    """Keys on each side, layer by layer: "small window sizes for the lower layers and increase as we move to higher layers",
    or the other way round where the highest layer has fewer; None: all as the lowest.

    linear: in equal steps, rounded. doubling: of widths each twice the one before, from the smaller to the larger one given,
    spread as evenly over the layers as they go.
    """
    if min(lowest, lowest if highest is None else highest) < 0 or layers < 1:
        raise ValueError(
            f"windows: got {lowest} to {highest} over {layers} layers, expected 0 or more keys, and layers"
        )
    if highest is None or layers == 1:
        return [lowest] * layers
    small, large = sorted((lowest, highest))
    if growth == "linear":
        spread = [small + round((large - small) * layer / (layers - 1)) for layer in range(layers)]
    elif growth == "doubling":
        spread = _doubling(small, large, layers)
    else:
        raise ValueError(f"growth: got {growth!r}, expected linear or doubling")
    return spread if lowest == small else spread[::-1]


def _doubling(small: int, large: int, layers: int) -> list[int]:
    widths = [small]
    while 0 < widths[-1] < large:
        widths.append(2 * widths[-1])
    if widths[-1] != large or len(widths) > layers:
        raise ValueError(
            f"windows: got {small} and {large} over {layers} layers, expected one to be the other doubled some times, at most "
            "once a layer"
        )
    return [widths[layer * len(widths) // layers] for layer in range(layers)]


def dilations(given: int | Sequence[int], layers: int) -> list[int]:
    """Distance between neighbours in a window, layer by layer; 1: no gaps. The paper counts the gaps: its 0 is 1 here."""
    found = [given] * layers if isinstance(given, int) else list(given)
    if len(found) != layers or min(found) < 1:
        raise ValueError(f"dilation: got {found}, expected one of 1 or more, or one for each of {layers} layers")
    return found
