"""What is looked at, a finished run or a row that is only composed, and what a look at it says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from torch import nn

from common.lit.training import Trained
from reproductions import dry_run
from reproductions.compose import jobs_of
from reproductions.job import task_of
from reproductions.stored import Opened, configuration, opened


@dataclass
class Report:
    """lines: what was found; faults: what is wrong, each by where it is."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Subject:
    """run: the folder of a finished one; None: of a configuration alone, whose weights are as they are drawn."""

    config: dict[str, Any]
    run: Path | None = None

    @cached_property
    def data(self) -> Any:
        """Need not be prepared."""
        return instantiate(self.config["data"])

    def drawn(self) -> Trained:
        """Before the first update."""
        return dry_run.build(self.config, self.data).eval()

    def opened(self) -> Opened:
        """Trained weights and prepared data. Raises ValueError for a configuration."""
        if self.run is None:
            raise ValueError(
                "got a configuration, expected the folder of a finished run: this look needs trained weights"
            )
        return opened(str(self.run))

    def best(self) -> Trained:
        """As it was tested, where it was."""
        return self.drawn() if self.run is None else self.opened().module.eval()

    def made_up(self, items: int, length: int) -> Any:
        """A batch of random items."""
        return task_of(self.config).made_up(self.data, items, length)

    def usual(self) -> tuple[int, int]:
        """Items of an update and positions of each."""
        return task_of(self.config).usual(self.data)


def subject_of(words: Sequence[str]) -> Subject:
    """A folder, or overrides that compose one row. Raises ValueError for anything else."""
    if len(words) == 1 and Path(words[0]).is_dir():
        return Subject(configuration(Path(words[0])), Path(words[0]))
    if lost := [word for word in words if "=" not in word]:
        raise ValueError(
            f"{lost[0]}: expected the folder of a finished run, or overrides such as experiment=luong/global_dot"
        )
    jobs = jobs_of(words, None)
    if len(jobs) != 1:
        raise ValueError(f"{' '.join(words)}: got {len(jobs)} rows, expected overrides that choose one")
    return Subject(jobs[0].config)


def named(module: nn.Module, part: nn.Module) -> str:
    """Its place in the model and its class."""
    [place] = [name for name, one in module.named_modules() if one is part]
    return f"{place.removeprefix('model.')} ({type(part).__name__})"
