"""python -m reproductions.archive paper=field_guide [scale=small] [runs=runs]

The runs behind a tracked RESULTS.md lie in one file, reproductions/<paper>/runs.<scale>.tar.xz, written with it: what claims and
tables read, rows of other papers included, without weights and without text. This puts into the runs folder those that are not
there, so that a report, or one row more, needs no training of the rest. What reads weights needs the row trained: FRESH=1.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from common.report.results import Results
from common.report.sentences import WIDTHS, json_lines, load_json

ROOT = Path(__file__).resolve().parent.parent
AS_THEY_ARE = ("result.json", "config.yaml", "samples.json", "curves.csv", "items/*.jsonl", "links/*.jsonl")
# A sentence's text is its data's, which is fetched and never kept here; a hypothesis can be made again.
NUMBERS = {"id", "cluster", "source_tokens", "nll", "target_tokens", "truncated", *WIDTHS}


def archive_file(root: Path, paper: str, scale: str) -> Path:
    return root / "reproductions" / paper / f"runs.{scale}.tar.xz"


def pack(results: Results, file: Path) -> None:
    """Write the finished runs of the papers' rows. The same runs give the same bytes."""
    runs = results.folder.parent.parent
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for folder in sorted(run.folder for row in results.papers for run in row.ok):
            for path, content in _kept(folder):
                entry = tarfile.TarInfo(path.relative_to(runs).as_posix())
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def _kept(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for pattern in AS_THEY_ARE:
        for path in sorted(folder.glob(pattern)):
            yield path, path.read_bytes()
    for path in sorted(folder.glob("sentences/*.jsonl")):
        kept = ({key: record[key] for key in record if key in NUMBERS} for _, record in json_lines(path))
        yield path, "".join(json.dumps(record) + "\n" for record in kept).encode()
    drawn = folder / "alignments.json"
    if drawn.is_file():
        yield drawn, json.dumps({"monotone": load_json(drawn)["monotone"], "alignments": []}).encode()


def unpack(file: Path, runs: Path) -> tuple[int, int]:
    """Put into `runs` what is not there. Returns how many runs were put there, and how many were there already.

    Raises ValueError where there is no such file.
    """
    if not file.is_file():
        raise ValueError(f"no stored runs: {file}: train them (make repro-<paper>)")
    with tarfile.open(file, "r:xz") as archive:
        entries = archive.getmembers()
        folders = {entry.name: "/".join(PurePosixPath(entry.name).parts[:3]) for entry in entries}
        present = {folder for folder in set(folders.values()) if (runs / folder).exists()}
        absent = [entry for entry in entries if folders[entry.name] not in present]
        archive.extractall(runs, absent, filter="data")
    return len(set(folders.values()) - present), len(present)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    given: dict[str, str] = {key: value for key, _, value in (argument.partition("=") for argument in argv)}
    if "paper" not in given or given.keys() - {"paper", "scale", "runs"}:
        print(f"got {' '.join(argv)!r}, expected paper=<paper> [scale=small] [runs=runs]", file=sys.stderr)
        return 2
    file = archive_file(root, given["paper"], given.get("scale", "small"))
    try:
        new, old = unpack(file, Path(given.get("runs", root / "runs")))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{file.name}: {new} runs put in place; {old} are there already, and stay as they are")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
