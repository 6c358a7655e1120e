"""Fetch with apt into a folder of our own: no root, nothing installed, the system's own lists untouched."""

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.fetch import (
    NETWORK_SECONDS,
    OFFLINE,
    Download,
    FetchError,
    check_space,
    new_folder,
    read_manifest,
    write_manifest,
)


def apt_get(root: Path, languages: str, *arguments: str) -> None:
    """Run apt-get with lists and cache under `root`. Raises FetchError with apt's own reason."""
    options = {
        "Dir::State::Lists": root / "lists",
        "Dir::Cache": root / "cache",
        "Acquire::Languages": languages,
        "Acquire::GzipIndexes": "false",
        "Acquire::Retries": 0,
        "Acquire::http::Timeout": NETWORK_SECONDS,
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
    }
    for folder in ("lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "-qq", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    done = subprocess.run([*command, *arguments], check=False, cwd=root, capture_output=True, text=True)
    # Without a network `update` succeeds with warnings and leaves nothing behind.
    if done.returncode or (arguments == ("update",) and "\nW: Failed to fetch" in f"\n{done.stderr}"):
        reason = (done.stderr.strip().splitlines() or ["apt-get gave no reason"])[0]
        raise FetchError(f"apt-get {' '.join(arguments)} failed: {reason} {OFFLINE}")


def require_apt(what: str) -> None:
    """Raises FetchError where there is no apt."""
    missing = [program for program in ("apt-get", "dpkg-deb") if shutil.which(program) is None]
    if missing:
        raise FetchError(
            f"{what} comes from Debian's archive and needs {' and '.join(missing)} (Debian, Ubuntu). "
            "Elsewhere use data=bible_enfr, which pip fetches anywhere, or data=files with files of your own."
        )


def fetch_with_apt(folder: Path, what: Download, fill: Callable[[Path, Path], None]) -> dict[str, Any]:
    """Fetch once: `fill(root, folder)` runs `apt_get(root, ...)` and writes what is needed to the folder.

    The archive moves on with its releases, so there is no hash to expect: the manifest, which is returned, records the
    hash of every file kept.
    """
    with new_folder(folder) as content:
        if content is not None:
            require_apt(what.what)
            check_space(content, what.peak or 0, what.what)
            print(f"Fetching {what.what} to {folder.parent}", flush=True)
            root = content.parent / "apt"
            root.mkdir()
            fill(root, content)
            hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(content.iterdir())}
            write_manifest(content, {"what": what.what, "sha256": hashes})
    return read_manifest(folder)
