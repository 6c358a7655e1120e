"""Measuring: interleaved times, live memory, FLOP counts, and `python -m common.bench`. Needs torch alone."""

from common.bench.memory import StorageMeter, peak_bytes
from common.bench.timing import count_flops, interleaved, median_seconds, product, seconds_of, synchronise

__all__ = [
    "StorageMeter", "count_flops", "interleaved", "median_seconds", "peak_bytes", "product", "seconds_of", "synchronise",
]  # fmt: skip
