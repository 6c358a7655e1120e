"""What a sweep will fetch and how long it will take, measured on this machine before it starts."""

import json
import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from hydra.utils import instantiate

from common.decode.beam import beam_search
from data.batch import made_up_batch
from data.translation import TranslationData
from data.vocab import BOS, EOS
from reproductions import dry_run
from reproductions.compose import Job

TEST_SENTENCES = 7500  # all that a row translates, about; generated data says its size
MEAN_SHARE = 0.55  # mean sentence length over the longest allowed, about
REST = 1.1  # validation, loading, scoring
CROWDED = 1.4  # rows side by side share caches and memory bandwidth; measured on two cores
START = 15  # seconds until a row trains


def announce(jobs: Sequence[Job], side_by_side: int) -> list[Job]:
    """Print downloads, disk and a time estimate; return the jobs with the longest first, so that none trails behind."""
    for data in data_sets(jobs):
        print(f"data: {data.plan()}")
    known: dict[str, float] = {}
    for job in jobs:
        key = model_key(job)
        if key not in known:
            known[key] = seconds(job.config)
    order = sorted(jobs, key=lambda job: -known[model_key(job)])
    loads = [0.0] * side_by_side
    for job in order:
        loads[loads.index(min(loads))] += known[model_key(job)]
    print(
        f"{len(jobs)} jobs, {side_by_side} at a time: about {duration(max(loads))} on this machine "
        f"(training {jobs[0].config['trainer']['precision']}, measured on a few made-up batches)",
        flush=True,
    )
    return order


def data_sets(jobs: Sequence[Job]) -> list[TranslationData]:
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
    return json.dumps([data, *(job.config[key] for key in ("model", "optim", "decode", "budget", "ensemble"))])


def seconds(config: dict[str, Any]) -> float:
    """Estimate of a job: a few updates and one beam search, timed."""
    if config["trainer"]["accelerator"] != "cpu":
        return float("nan")
    torch.set_num_threads(config["trainer"]["threads"])
    module, vocabulary = dry_run.build(config), dry_run.vocabulary(config)
    words = max(2, int(MEAN_SHARE * (config["data"]["max_words"] or 50)))
    size = config["data"]["batch"]["size"]
    sentences = size if config["data"]["batch"]["unit"] == "sentences" else max(1, size // words)
    batch = made_up_batch(*vocabulary, sentences, words)
    optimizer = module.optimizer(module.parameters())
    bf16 = config["trainer"]["precision"].startswith("bf16")
    times = []
    for _ in range(4):
        started = time.perf_counter()
        dry_run.update(module, optimizer, batch, bf16)
        times.append(time.perf_counter() - started)
    budget = config["budget"]
    updates = budget["updates"] or budget["target_tokens"] / (sentences * (words + 1))
    decode, test = config["decode"], made_up_batch(*vocabulary, config["decode"]["batch"], words)
    started = time.perf_counter()
    beam_search(
        module.translator,
        test.source,
        test.source_mask,
        bos=BOS,
        eos=EOS,
        beam=decode["beam"],
        max_len=int(words * 1.2),
    )
    source = config["data"]["source"]
    sentences = 3 * source["test"] if "test" in source and "test_long" in source else TEST_SENTENCES
    members = len(config["ensemble"])
    translate = max(1, members) * (time.perf_counter() - started) * sentences / decode["batch"]
    return START + REST * CROWDED * (updates * sorted(times[1:])[1] * (not members) + translate)
