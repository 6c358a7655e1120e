"""What a token costs in the cache: the formulas of GQA and DeepSeek-V2, the planner, and what is allocated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from common.attention.cache import CacheShape, Plan, StaticCache
from common.bench.by_length import store


@dataclass(frozen=True, kw_only=True)
class Planned:
    """`elements`: numbers that a token adds to the caches of all layers, as `Plan` has it; `off_plan`: by how many
    per cent the bytes of static caches of `tokens` tokens differ from so many numbers; `saved`: per cent less than the first row.

    rows: row -> layers and the `CacheShape` of each.
    """

    rows: Mapping[str, Mapping[str, int]]
    tokens: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {row: {} for row in self.rows}
        elements = {}
        for row, sizes in self.rows.items():
            shape = CacheShape(
                kv_heads=sizes["kv_heads"],
                key_dim=sizes["key_dim"],
                value_dim=sizes["value_dim"],
                dtype=torch.bfloat16,
            )
            width = torch.bfloat16.itemsize
            elements[row] = Plan(sizes["layers"], shape).bytes_per_token // width
            made = StaticCache(shape, sequences=1, capacity=self.tokens).bytes * sizes["layers"]
            store(found, row, "elements", "default", "numbers").append(elements[row])
            off = abs(made / (elements[row] * width * self.tokens) - 1)
            store(found, row, "off_plan", "default", "%").append(100 * off)
        first = next(iter(elements.values()))
        for row, count in elements.items():
            store(found, row, "saved", "default", "%").append(100 * (1 - count / first))
        return found
