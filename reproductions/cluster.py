"""Rows as jobs of a Hydra launcher, such as submitit's for SLURM, in place of our own on this machine."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from reproductions.compose import BAD_CONFIG, CONF, first_line, job, jobs_of, searched
from reproductions.launcher import finished, work

LAUNCHER = "hydra/launcher"


def chosen(overrides: Sequence[str]) -> bool:
    """Whether a launcher is named."""
    return any(override.partition("=")[0] == LAUNCHER for override in overrides)


def submit(overrides: Sequence[str], searchpath: str | None) -> int:
    """Hands what is not finished to the named launcher and waits for it; 1 if a row failed.

    All rows are checked before any is handed over. Raises ValueError for an override that does not fit, as for a launcher
    that is not installed. A row of finished rows, such as an ensemble, is for a later call.
    """
    of_hydra = [o for o in overrides if o.lstrip("+").startswith("hydra")]
    jobs = [job for job in jobs_of([o for o in overrides if o not in of_hydra], searchpath) if not finished(job)]
    if not jobs:
        return 0
    with initialize_config_dir(str(CONF), version_base="1.3"):
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None
        try:
            config = hydra.compose_config(
                "train",
                [*searched(searchpath), *of_hydra, *jobs[0].overrides],
                run_mode=RunMode.MULTIRUN,
                with_log_configuration=False,
            )
        except BAD_CONFIG as error:
            raise ValueError(f"{' '.join(of_hydra)}: {first_line(error)}") from None
        context = HydraContext(hydra.config_loader, Callbacks(config))
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=run_row, config=config)
        returns = launcher.launch([list(job.overrides) for job in jobs], initial_job_idx=0)
    failed = 0
    for of_one, done in zip(jobs, returns, strict=True):
        if done.status != JobStatus.COMPLETED or done.return_value != 0:
            failed = 1
            reason = f"see {of_one.folder / 'error.txt'}" if done.status == JobStatus.COMPLETED else done._return_value
            print(f"failed: {of_one.folder}: {reason}", file=sys.stderr)
    return failed


def run_row(config: DictConfig) -> int:
    """What the launcher runs, in a process of its own: one row."""
    adopt_ranks()
    from_outside = [source.path for source in HydraConfig.get().runtime.config_sources if source.schema == "file"]
    others = [path for path in from_outside if Path(path) != CONF]
    overrides = tuple(HydraConfig.get().overrides.task)
    GlobalHydra.instance().clear()  # a row is composed and checked as everywhere else
    return work(job(overrides, others[0] if others else None))


def adopt_ranks() -> None:
    """Which process of a distributed training this is, where srun or torchrun say so in words of their own: a job asks for
    LOCAL_RANK and NODE_RANK."""
    in_step = "SLURM_STEP_ID" in os.environ  # of srun: the script around it has a rank as well, and is none of them
    for name, theirs in (("LOCAL_RANK", "SLURM_LOCALID"), ("NODE_RANK", "SLURM_NODEID"), ("NODE_RANK", "GROUP_RANK")):
        if theirs in os.environ and (in_step or not theirs.startswith("SLURM")):
            os.environ.setdefault(name, os.environ[theirs])
