"""How many bytes a cache takes, before it is made."""

from dataclasses import dataclass

from common.attention.cache.storage import CacheShape


@dataclass(frozen=True)
class Plan:
    """Of a model of `layers` layers that keep `shape` each.

    What is planned is what is allocated: for each sequence the capacity of a static cache, the window of a sliding one, the
    capacity of a growing one, less than twice what it holds; of a paged one pages * page_size, as of one sequence. While a
    growing cache grows, the old and the new buffer of one tensor are there at once.

    Raises ValueError for fewer than one layer.
    """

    layers: int
    shape: CacheShape

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise ValueError(f"layers: got {self.layers}, expected 1 or more")

    @property
    def bytes_per_token(self) -> int:
        return self.layers * self.shape.bytes_per_token

    def bytes(self, positions: int, sequences: int = 1) -> int:
        """Of `positions` slots for each of the sequences."""
        return positions * sequences * self.bytes_per_token

    def longest(self, memory: int, sequences: int = 1) -> int:
        """Positions of each sequence that `memory` bytes hold."""
        return memory // (sequences * self.bytes_per_token)

    def check(self, positions: int, memory: int, sequences: int = 1) -> None:
        """Raises ValueError where they don't fit `memory` bytes."""
        needed = self.bytes(positions, sequences)
        if needed > memory:
            raise ValueError(
                f"cache: got {memory} bytes, expected {needed} for {sequences} x {positions} positions; they hold "
                f"{self.longest(memory, sequences)} each"
            )
