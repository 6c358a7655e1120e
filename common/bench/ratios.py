"""How many times faster one thing is than another, from samples taken in turns."""

import math
import statistics
from collections.abc import Sequence

from common.bench.record import Ratio


def ratio(others: Sequence[float], own: Sequence[float]) -> Ratio:
    """others / own by turns: the median, and the narrowest interval between ordered turns that covers the true median
    with 95% (Conover 1999, section 3.2), or from least to most with its lower coverage where there are fewer than six.
    """
    quotients = sorted(a / b for a, b in zip(others, own, strict=True))
    n = len(quotients)
    cut = max((k for k in range(n // 2) if coverage(n, k) >= 0.95), default=0)
    return Ratio(statistics.median(quotients), quotients[cut], quotients[n - 1 - cut], coverage(n, cut))


def coverage(n: int, cut: int) -> float:
    """Probability that a median lies between the ordered samples left when `cut` are cut off at each end."""
    return 1 - 2 * sum(math.comb(n, k) for k in range(cut + 1)) / 2**n
