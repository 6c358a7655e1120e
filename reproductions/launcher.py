"""Runs jobs: skips finished ones, says what is coming, runs the rest side by side, each in a process of its own."""

import json
import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from reproductions import ensemble, provenance
from reproductions.compose import Job
from reproductions.manifest import write_manifest

POLL_SECONDS = 0.5
JOB_MEMORY = 4 * 2**30
# glibc hands large tensors back to the system at every step and gets them zeroed again: a quarter of a CPU step
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 26),
}
IMPORTED = (
    "reproductions.job",
    "reproductions.tasks.text",
    "reproductions.tasks.translation",
)
LOGGING = ("reproductions.log_wandb", "wandb.sdk.launch")
"""What a row that is logged imports besides, the second when its run starts."""


def finished(job: Job) -> bool:
    """Whether a result of the same configuration, source and (where it lies prepared) data exists."""
    result = read_json(job.folder / "result.json")
    if job.config["fresh"] or job.config["dry_run"] or result is None:
        return False
    return (
        result["status"] == "ok"
        and result["config_hash"] == provenance.config_hash(job.config)
        and result["source_hash"] == provenance.source_hash(job.config)
        and same_data(job, result["data_checksum"])
        and same_members(job, result)
    )


def unfinished(jobs: Sequence[Job]) -> list[Job]:
    """Those to be run: also the finished ones that are made of one that is."""
    pending = {job.folder for job in jobs if not finished(job)}
    while more := {job.folder for job in jobs if pending & set(ensemble.folders(job.config).values())} - pending:
        pending |= more
    return [job for job in jobs if job.folder in pending]


def same_members(job: Job, result: dict[str, Any]) -> bool:
    """Whether it is made of the rows that lie there now; true for a row that is made of none."""
    try:
        return ensemble.weights_of(job.config) == result.get("members", {})
    except ValueError:
        return False


def same_data(job: Job, checksum: str) -> bool:
    """Whether the data that lies prepared is still that of a result; true where it would have to be downloaded first."""
    from hydra.utils import instantiate

    data = instantiate(job.config["data"])
    if not data.folder.exists() and data.downloads:
        return True
    if not data.prepared:
        data.prepare_data()
    return data.checksum == checksum


def work(job: Job) -> int:
    """Run one job in this process. 0 if it has a good result in the end."""
    if job.config["dry_run"]:
        from reproductions.dry_run import dry_run

        try:
            print(dry_run(job.config), flush=True)
        except RuntimeError as error:
            print(f"error: {job.config['row']}: {error}", file=sys.stderr)
            return 1
        return 0
    if finished(job):
        return 0
    from reproductions.job import first_process, run

    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(job.folder / ".lock", timeout=0) if first_process() else nullcontext():
            run(job.config, job.folder, list(job.ablation))
            if first_process():
                write_manifest(job.folder)
    except Timeout:
        print(f"error: {job.folder} is being written by another process: wait for it, or stop it", file=sys.stderr)
        return 1
    except SystemExit as stop:  # what Lightning makes of Ctrl-C while it trains
        raise KeyboardInterrupt from stop
    except Exception as error:  # noqa: BLE001 - whatever it is, one line says so and the traceback is kept
        where = job.folder / "error.txt"
        print(f"error: {job.config['row']}: {type(error).__name__}: {error} (traceback in {where})", file=sys.stderr)
        return 1
    return 0


def launch(jobs: Sequence[Job], searchpath: str | None) -> int:
    """Run what is not finished. A failing job never hides another; the exit code is 1 if any failed."""
    if jobs[0].config["dry_run"]:
        return max([work(job) for job in jobs])
    pending = unfinished(jobs)
    for job in jobs:
        if job not in pending:
            print(f"finished before: {job.folder}")
    if not pending:
        return 0
    side_by_side = slots(pending[0].config)
    from reproductions.estimate import announce, prepare

    order = announce(pending, side_by_side)
    if problem := prepare(pending):
        print(f"error: {problem}", file=sys.stderr)
        return 3  # nothing was run: there is nothing to report on
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the jobs are to be stopped with their launcher
    failed = Board(order, searchpath, side_by_side).run()
    for job, reason in failed:
        print(f"failed: {job.folder}: {reason}", file=sys.stderr)
    view_table(jobs[0].config)
    return 1 if failed else 0


def view_table(config: dict[str, Any]) -> None:
    """The table, and published numbers beside our own, in W&B."""
    if config["logger"]["kind"] == "wandb":
        from reproductions.log_wandb import log_published, log_table

        logger, runs = config["logger"], Path(config["paths"]["runs"])
        where = config["paper"], config["scale"]["name"], runs, logger["project"], logger["mode"]
        log_published(*where)
        log_table(*where)


def slots(config: dict[str, Any]) -> int:
    """Jobs at a time: on CPUs as many as cores (for their threads) and memory allow, on accelerators one."""
    trainer = config["trainer"]
    if trainer["accelerator"] != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // (trainer["threads"] * trainer["devices"]), int(free_memory() / JOB_MEMORY)))


def free_memory() -> float:
    """Bytes that can be had without swapping; where the system does not tell, no limit."""
    info = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+) kB", info.read_text()) if info.exists() else None
    return float(found[1]) * 1024 if found else float("inf")


@dataclass
class Running:
    job: Job
    process: BaseProcess
    bar: tqdm


def processes(wandb: bool) -> ForkServerContext | SpawnContext:
    """What starts them: on Linux copies of one that has imported everything and computed nothing, since imports take
    longer than a small row."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED, *LOGGING * wandb, "reproductions.preloaded"])
    return context


@contextmanager
def environment(more: Mapping[str, str]) -> Iterator[None]:
    """What is read when a process starts."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run_row(arguments: Sequence[str], log: Path, variables: Mapping[str, str], job: Job) -> None:
    """What such a process does: `python -m reproductions.train` with these arguments, of which `job` is composed."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(variables)
    from reproductions import preloaded

    if preloaded.changed():
        os.execve(sys.executable, [sys.executable, "-m", "reproductions.train", *arguments], os.environ)
    sys.argv[1:] = arguments  # Lightning starts the further processes of distributed training with them
    from reproductions.train import main

    sys.exit(main(arguments, job))


@dataclass
class Board:
    """Processes and their progress bars; without a terminal, a line at each start and end."""

    jobs: Sequence[Job]
    searchpath: str | None
    slots: int
    failed: list[tuple[Job, str]] = field(default_factory=list)

    def run(self) -> list[tuple[Job, str]]:
        waiting, running = list(self.jobs), list[Running]()
        try:
            while waiting or running:
                while len(running) < self.slots and (ready := self.ready(waiting, running)):
                    waiting.remove(ready)
                    running.append(self.start(ready))
                wait([one.process.sentinel for one in running], POLL_SECONDS)
                running = [one for one in running if not self.look(one)]
        finally:
            for one in running:
                one.process.terminate()
            for one in running:
                one.process.join()
        return self.failed

    def ready(self, waiting: Sequence[Job], running: Sequence[Running]) -> Job | None:
        """The first that can start: one that is made of others waits for them."""
        ahead = {job.folder for job in [*waiting, *(one.job for one in running)]}
        return next((job for job in waiting if not ahead & set(ensemble.folders(job.config).values())), None)

    def start(self, job: Job) -> Running:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / "progress.json").unlink(missing_ok=True)
        if (read_json(job.folder / "result.json") or {}).get("status") == "failed":
            (job.folder / "result.json").unlink()  # of an earlier attempt
        directory = ["--config-dir", self.searchpath] if self.searchpath else []
        threads = str(job.config["trainer"]["threads"])
        with environment(KEEP_MEMORY | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}):
            arguments = [*directory, *job.overrides], job.folder / "log.txt", dict(os.environ), job
            process = processes(job.config["logger"]["kind"] == "wandb").Process(target=run_row, args=arguments)
            process.start()
        quiet = not sys.stderr.isatty()
        if quiet:
            print(f"started: {job.folder.name}", flush=True)
        bar = tqdm(desc=job.folder.name, unit=" updates", disable=quiet, dynamic_ncols=True)
        bar.set_postfix_str("starting")
        return Running(job, process, bar)

    def look(self, one: Running) -> bool:
        """Update the bar; True once the process has ended."""
        folder = one.job.folder
        code = one.process.exitcode
        state = read_json(folder / "progress.json")
        if state:
            one.bar.total = state["total"]
            one.bar.set_postfix_str(state["note"], refresh=False)
            one.bar.update(state["done"] - one.bar.n)
        if code is None:
            return False
        result = read_json(folder / "result.json") or {}
        good = code == 0 and result.get("status") == "ok"
        one.bar.set_postfix_str("done" if good else "failed")
        one.bar.close()
        if not good:
            reason = result.get("error") or f"ended with code {code}"
            self.failed.append((one.job, f"{reason} (see {folder / 'log.txt'})"))
        if one.bar.disable:
            print(f"{'done' if good else 'failed'}: {folder.name} ({result.get('seconds', 0.0):.0f} s)", flush=True)
        return True


def read_json(path: Path) -> dict[str, Any] | None:
    """None where it is not (yet) there."""
    return json.loads(path.read_text()) if path.is_file() else None
