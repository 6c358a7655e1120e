"""What a finished run left, as checksums beside it: a byte that changes later is seen."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from reproductions.records import write_json

NAME = "manifest.json"
KEPT = (
    "result.json",
    "config.yaml",
    "samples.json",
    "curves.csv",
    "alignments.json",
    "heads.json",
    "tested.ckpt",
    "sentences/*.jsonl",
    "items/*.jsonl",
    "links/*.jsonl",
)


def digests(folder: Path) -> dict[str, str]:
    """sha256 by name of the files that make up a run."""
    files = (file for pattern in KEPT for file in sorted(folder.glob(pattern)))
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def write_manifest(folder: Path) -> None:
    """After everything else of the run."""
    write_json(folder / NAME, digests(folder))


def changes(folder: Path) -> Iterator[str]:
    """What is no longer as the run left it. Raises ValueError for a folder without a manifest."""
    file = folder / NAME
    if not file.is_file():
        raise ValueError(
            f"{folder}: no {NAME}: expected the folder of a run that was made here, not one from an archive"
        )
    try:
        left, found = json.loads(file.read_text(encoding="utf-8")), digests(folder)
    except ValueError as error:
        yield f"{file}: not valid JSON: {error}"
        return
    for name in sorted({*left, *found}):
        if left.get(name) != found.get(name):
            how = "is gone" if name not in found else "was not there" if name not in left else "was changed"
            yield f"{folder / name} {how} since the run"
