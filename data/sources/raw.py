"""Files by their address: downloaded once, what was first read recorded, a silent change refused."""

import hashlib
import json
import urllib.request
from abc import ABC, abstractmethod
from http.client import HTTPException
from pathlib import Path
from typing import Any, ClassVar

from data.fetch import (
    NETWORK_SECONDS,
    Download,
    FetchError,
    check_space,
    megabytes,
    new_folder,
    read_manifest,
    write_manifest,
)
from data.sources.base import Context

FILE = "file"


class Raw(ABC):
    """`key`: what the file is called here; `download_bytes`: its size, about, and `unpacked_bytes` of disk that preparing takes;
    `generated` and `packaged`: the data sets to name where there is no network, one generated, one that pip fetches."""

    key: ClassVar[str]
    url: ClassVar[str]
    download_bytes: ClassVar[int]
    unpacked_bytes: ClassVar[int]
    generated: ClassVar[str]
    packaged: ClassVar[str]

    def folder(self, context: Context) -> Path:
        return context.cache / f"raw-{self.key}"

    def file(self, context: Context) -> Path:
        return self.folder(context) / FILE

    def record(self, context: Context) -> Path:
        """Where the hash of the file lies that was read first, whether or not the file is kept."""
        return context.cache / "hub" / f"{self.key}.json"

    def downloads(self, context: Context) -> list[Download]:
        if self.folder(context).exists():
            return []
        peak = self.download_bytes + 2 * self.unpacked_bytes
        return [
            Download(
                f"{self.key} from {self.url}", self.download_bytes, peak, self.download_bytes + self.unpacked_bytes
            )
        ]

    def identity(self, context: Context) -> dict[str, Any]:
        return {}

    def provenance(self, context: Context) -> dict[str, Any]:
        return self.fetch(context)

    @abstractmethod
    def check(self, file: Path) -> None:
        """Raises FetchError where the file is not what it should be; it is not kept then."""

    def fetch(self, context: Context) -> dict[str, Any]:
        """Downloads the file unless it is there. Returns its address and hash. Raises FetchError: no network, too
        little disk, content that differs from what was recorded."""
        with new_folder(self.folder(context)) as content:
            if content is not None:
                check_space(content, self.download_bytes + 2 * self.unpacked_bytes, self.key)
                print(
                    f"Downloading {self.key}, {megabytes(self.download_bytes)}, to {self.folder(context)}", flush=True
                )
                sha256 = self.download(content / FILE, context)
                self.check(content / FILE)
                self.note(sha256, context)
                write_manifest(content, {"url": self.url, "sha256": sha256})
        return read_manifest(self.folder(context))

    def download(self, to: Path, context: Context) -> str:
        """Streams the file; returns its sha256."""
        digest = hashlib.sha256()
        try:
            with urllib.request.urlopen(self.url, timeout=NETWORK_SECONDS) as source, open(to, "wb") as file:
                while chunk := source.read(1 << 20):
                    digest.update(chunk)
                    file.write(chunk)
        except (OSError, HTTPException) as error:  # URLError and timeouts are OSErrors
            raise FetchError(
                f"could not get {self.key} from {self.url} into {self.folder(context)}: {error}. Without a network use "
                f"data={self.generated}, which is generated; data={self.packaged} needs only pip."
            ) from error
        return digest.hexdigest()

    def note(self, sha256: str, context: Context) -> None:
        """Record the hash, or compare it with the one recorded."""
        record = self.record(context)
        known = json.loads(record.read_text(encoding="utf-8"))["sha256"] if record.exists() else sha256
        if known != sha256 and not context.allow_newer:
            raise FetchError(
                f"{self.url}: got sha256 {sha256}, expected {known} as first read ({record}). data.allow_newer=true "
                "accepts the new content."
            )
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({"sha256": sha256}, indent=2) + "\n", encoding="utf-8")
