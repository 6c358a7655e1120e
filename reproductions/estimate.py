"""What a sweep will fetch and how long it will take, measured on this machine before it starts."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from hydra.utils import instantiate

from data.stream import StreamData
from reproductions import dry_run
from reproductions.compose import Job
from reproductions.job import task_of
from reproductions.tasks.base import update

REST = 1.1  # validation, loading, scoring
CROWDED = 1.4  # rows side by side share caches and memory bandwidth; measured on two cores
START = 3  # seconds until a row trains


def announce(jobs: Sequence[Job], side_by_side: int) -> list[Job]:
    """Print downloads, disk and a time estimate; return the jobs with the longest first, so that none trails behind."""
    for data in data_sets(jobs):
        print(f"data: {data.plan()}")
    times = estimates(jobs)
    order = sorted(jobs, key=lambda job: -times[model_key(job)])
    print(
        f"{len(jobs)} jobs, {side_by_side} at a time: about {duration(makespan(order, times, side_by_side))} on this "
        f"machine (training {jobs[0].config['trainer']['precision']}, measured on a few made-up batches)",
        flush=True,
    )
    return order


def estimates(jobs: Sequence[Job]) -> dict[str, float]:
    """Seconds of each by its `model_key`; 0 where a row can't be built, which is said."""
    known: dict[str, float] = {}
    for job in jobs:
        key = model_key(job)
        if key not in known:
            try:
                known[key] = seconds(job.config)
            except Exception as error:  # noqa: BLE001 - whatever it is: the row says so itself, the others go on
                known[key] = 0.0
                print(f"no estimate for {job.config['row']}: {type(error).__name__}: {error}", flush=True)
    return known


def makespan(order: Sequence[Job], times: Mapping[str, float], side_by_side: int) -> float:
    """Seconds until all have run, each started when a place is free."""
    loads = [0.0] * side_by_side
    for job in order:
        loads[loads.index(min(loads))] += times[model_key(job)]
    return max(loads)


def data_sets(jobs: Sequence[Job]) -> list[StreamData]:
    """What the jobs read, each once."""
    distinct = {json.dumps(job.config["data"] | {"max_words": None, "seed": 0}): job for job in jobs}
    return [instantiate(job.config["data"]) for job in distinct.values()]


def prepare(jobs: Sequence[Job]) -> str:
    """Fetch and prepare the data once for all jobs. Returns what went wrong, or nothing."""
    for data in data_sets(jobs):
        try:
            data.prepare()
            print(data.describe(), flush=True)
        except (RuntimeError, ValueError, OSError) as error:
            return str(error)
    return ""


def duration(seconds: float) -> str:
    """On accelerators nothing is measured, and nothing is promised."""
    if math.isnan(seconds):
        return "an unknown time"
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def model_key(job: Job) -> str:
    """Jobs with the same key take the same time."""
    data = job.config["data"] | {"seed": 0}
    return json.dumps([data, *(job.config[key] for key in ("task", "model", "optim", "decode", "budget", "ensemble"))])


def seconds(config: dict[str, Any]) -> float:
    """Estimate of a job: a few updates and a part of its test, timed."""
    if config["trainer"]["accelerator"] != "cpu":
        return float("nan")
    torch.set_num_threads(config["trainer"]["threads"])
    data, task = instantiate(config["data"]), task_of(config)
    module = dry_run.build(config, data)
    tested = task.test_seconds(module, config, data)
    if config["ensemble"]:
        return START + REST * CROWDED * tested
    batch = task.made_up(data, *task.usual(data))
    optimizer = module.optimizer(module.parameters())
    bf16 = config["trainer"]["precision"].startswith("bf16")
    times = []
    for _ in range(4):
        started = time.perf_counter()
        update(module, optimizer, batch, bf16)
        times.append(time.perf_counter() - started)
    budget = config["budget"]
    updates = budget["updates"]
    if updates is None:
        updates = budget["target_tokens"] / int(batch.target_tokens)
    return START + REST * CROWDED * (updates * sorted(times[1:])[1] + tested)
