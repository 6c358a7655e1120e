"""GQA, Figure 6: what attention of the next position costs by the number of groups, where much is cached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from common.attention.cache import Remembered
from common.bench.by_length import store
from common.bench.timing import interleaved, seconds_of
from common.nn.multihead import MultiHead

COPY = "copy"


@dataclass(frozen=True, kw_only=True)
class Groups:
    """By the positions cached: `attend_ms`, milliseconds of a layer's attention of one position of `batch` sequences;
    `cache_mb`, bytes of keys and values, which it reads once; `of_copy`, per cent: bytes read a second over what a copy of as
    many bytes as the largest cache has moves a second, read and written, in the same turn.

    rows: row -> kv_heads.
    """

    rows: Mapping[str, int]
    cached: Sequence[int]
    batch: int
    d_model: int
    heads: int
    device: str
    repeats: int
    threads: int

    @torch.no_grad()
    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        torch.manual_seed(seed)
        found: dict[str, dict[str, Any]] = {row: {} for row in self.rows}
        for length in self.cached:
            print(f"{length:,} positions", flush=True)
            decoders = {row: Decoder(self, kv_heads, length) for row, kv_heads in self.rows.items()}
            largest = torch.ones(max(decoder.bytes for decoder in decoders.values()) // 4, device=self.device)
            target = torch.empty_like(largest)
            calls = {COPY: lambda source=largest, to=target: to.copy_(source), **decoders}
            timers = {name: partial(seconds_of, call) for name, call in calls.items()}
            seconds = interleaved(timers, repeats=self.repeats)
            copied = [2 * 4 * largest.numel() / s for s in seconds[COPY]]
            for row, decoder in decoders.items():
                store(found, row, "attend_ms", length).extend(1e3 * s for s in seconds[row])
                store(found, row, "cache_mb", length, "MB").append(decoder.bytes / 1e6)
                shares = [100 * decoder.bytes / s / c for s, c in zip(seconds[row], copied, strict=True)]
                store(found, row, "of_copy", length, "%").extend(shares)
        return found


class Decoder:
    """One layer's attention that has seen `length` positions; each call is the next one."""

    def __init__(self, of: Groups, kv_heads: int, length: int) -> None:
        self.attention = MultiHead(of.d_model, of.heads, kv_heads=kv_heads, backend="reference").to(of.device).eval()
        self.x = torch.randn(of.batch, of.d_model, device=of.device)
        past = torch.randn(of.batch, length, of.d_model, device=of.device)
        nothing = self.attention.nothing_yet(of.batch, past, None)
        self.memory: Remembered = nothing.extended(*self.attention.keys_values(past))
        self.bytes = self.memory.bytes

    def __call__(self) -> None:
        _, self.memory = self.attention.extend(self.x, self.memory)
