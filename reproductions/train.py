"""Train rows of a published table.

    python -m reproductions.train experiment=bahdanau/rnnsearch_50 scale=smoke      one job, in this process
    python -m reproductions.train -m table=bahdanau_1 seed=1,2,3                    a table: finished jobs are skipped,
                                                                                    the others run side by side

Any Hydra override can follow; one that touches the science makes a new line of its own. `--config-dir DIR` adds a
folder of configurations outside the repository. `--cfg job`, `--info` and `--help` are Hydra's, and so is a launcher that
is named: with -m and hydra/launcher=submitit_slurm each row is a job of a cluster.
"""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig

if TYPE_CHECKING:
    from reproductions.compose import Job

# oneDNN keeps a compiled product for each shape it has seen, a thousand of them: gigabytes, as every batch has its own
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


def main(argv: Sequence[str] | None = None, composed: "Job | None" = None) -> int:
    """`composed`: the one job that the arguments stand for, where the caller has it."""
    arguments = get_args_parser().parse_intermixed_args(argv)
    if arguments.cfg or arguments.info or arguments.hydra_help or arguments.help:
        _by_hydra()
        return 0
    try:
        return _run(tuple(arguments.overrides), arguments.config_dir, arguments.multirun, composed)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted: finished rows are kept, the others go on from their last checkpoint", file=sys.stderr)
        return 130


def _run(overrides: tuple[str, ...], searchpath: str | None, multirun: bool, composed: "Job | None") -> int:
    from reproductions.cluster import adopt_ranks, chosen, submit
    from reproductions.compose import job, jobs_of
    from reproductions.launcher import launch, work

    adopt_ranks()
    if multirun and chosen(overrides):
        return submit(overrides, searchpath)
    return (
        launch(jobs_of(overrides, searchpath), searchpath) if multirun else work(composed or job(overrides, searchpath))
    )


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
def _by_hydra(config: DictConfig) -> None:
    """Hydra prints what was asked for and never gets here."""


if __name__ == "__main__":
    sys.exit(main())
