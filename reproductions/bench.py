"""python -m reproductions.bench bench=nmt | bench=<paper> [scale=small] [key=value ...]: what is measured, not trained."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from reproductions.compose import BAD_CONFIG, CONF, first_line, is_science
from reproductions.launcher import KEEP_MEMORY

SELECTS = "bench"


def configured(overrides: Sequence[str]) -> dict[str, Any]:
    """The resolved configuration. Raises ValueError in one line that names what is wrong."""
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("bench", list(overrides))
        resolved: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except BAD_CONFIG as error:
        raise ValueError(first_line(error)) from None
    return resolved


def main(overrides: Sequence[str]) -> int:
    try:
        config = configured(overrides)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if "paper" not in config:
        from reproductions.bench_nmt import nmt

        nmt(OmegaConf.create(config))
        return 0
    from reproductions.measure import run

    science = [o for o in overrides if not o.startswith(f"{SELECTS}=") and is_science(o)]
    return run(config, sorted(science))


if __name__ == "__main__":
    if not KEEP_MEMORY.keys() <= os.environ.keys():  # read when a process starts, as the launcher's jobs have it
        os.execve(
            sys.executable, [sys.executable, "-m", "reproductions.bench", *sys.argv[1:]], os.environ | KEEP_MEMORY
        )
    sys.exit(main(sys.argv[1:]))
