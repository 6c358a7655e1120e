"""Train rows of a published table.

    python -m reproductions.train experiment=bahdanau/rnnsearch_50 scale=smoke      one job, in this process
    python -m reproductions.train -m table=bahdanau_1 seed=1,2,3                    a table: finished jobs are skipped,
                                                                                    the others run side by side

Any Hydra override can follow; one that touches the science makes a new line of its own. `--config-dir DIR` adds a
folder of configurations outside the repository. With `hydra/launcher=...` the sweep goes to that launcher of Hydra's.
"""

import sys
from collections.abc import Sequence

import hydra
from hydra._internal.utils import get_args_parser
from omegaconf import DictConfig


def main(argv: Sequence[str] | None = None) -> int:
    arguments = get_args_parser().parse_args(argv)
    searchpath, overrides = arguments.config_dir, tuple(arguments.overrides)
    if arguments.cfg or arguments.info or arguments.hydra_help or arguments.help or _other_launcher(overrides):
        _by_hydra()
        return 0
    try:
        return _run(overrides, searchpath, arguments.multirun)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted: finished rows are kept, the others go on from their last checkpoint", file=sys.stderr)
        return 130


def _run(overrides: tuple[str, ...], searchpath: str | None, multirun: bool) -> int:
    from reproductions.compose import job, jobs_of

    if not multirun:
        from reproductions.launcher import work

        return work(job(overrides, searchpath))
    from reproductions.launcher import launch

    return launch(jobs_of(overrides, searchpath), searchpath)


def _other_launcher(overrides: Sequence[str]) -> bool:
    return any(o.startswith("hydra/launcher=") for o in overrides)


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
def _by_hydra(config: DictConfig) -> None:
    """A job as a launcher plug-in of Hydra runs it, and `--cfg`, `--info`, `--help`."""
    from hydra.core.hydra_config import HydraConfig

    from reproductions.compose import job
    from reproductions.launcher import work

    if work(job(tuple(HydraConfig.get().overrides.task), None)):
        raise RuntimeError(f"{config.row} failed")


if __name__ == "__main__":
    sys.exit(main())
