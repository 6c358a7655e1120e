"""Section 3.3, proposition 4: block-sparse attention is cheaper by the share of blocks that it leaves out."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from common.attention import Random, attention
from common.bench.job import Job
from common.bench.timing import interleaved
from common.bench.workload import Shape, random_inputs


@dataclass(frozen=True)
class Density:
    """Milliseconds of a forward and backward pass by density, densities in turns. Points: the share of blocks kept."""

    row: str
    backend: str
    densities: Sequence[float]
    block: int
    length: int
    heads: int
    head_dim: int
    dtype: str
    device: str
    repeats: int
    threads: int

    def __call__(self, seed: int) -> dict[str, dict[str, Any]]:
        torch.set_num_threads(self.threads)
        shape = Shape(1, self.heads, self.heads, self.length, self.head_dim, self.dtype, self.device)
        sets, blocks = random_inputs(shape, 1, seed), -(-self.length // self.block)
        jobs = {}
        for density in self.densities:
            mask = Random(max(1, round(density * blocks)), self.block, seed)
            jobs[f"{mask.count / blocks:.4g}"] = Job(partial(attention, mask=mask, backend=self.backend), "both", sets)
        for job in jobs.values():
            job.warm_up()
        seconds = interleaved({name: job.seconds for name, job in jobs.items()}, repeats=self.repeats)
        at = {name: [s * 1e3 for s in samples] for name, samples in seconds.items()}
        return {self.row: {"density_ms": {"unit": "ms", "at": at, "refused": {}}}}
