"""Measured tables: times, bytes and errors of a paper's rows, kept as samples.json beside a result.json a row.

A paper's measurements come in parts, each a callable that gives samples by row and quantity; a part that is finished for
the same settings and sources is not measured again. All rows of a part are measured in turns, in this one process.
A part may also score a row that is not trained, sentence by sentence: its row then has, under `scored`, `facts` for
result.json and `lines`, records by file.
"""

import hashlib
import json
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from hydra.utils import instantiate

from common.naming import folder_name
from reproductions import provenance
from reproductions.manifest import write_manifest
from reproductions.records import write_json, write_lines

Config = dict[str, Any]
Rows = Mapping[str, Mapping[str, Any]]
"""row -> quantity -> {"unit", "at": {point: [repeats]}, "refused": {point: reason}}."""
SCORED = "scored"


def run(config: Config, ablation: Sequence[str]) -> int:
    """Measure what is not there, write every row. 0, or 1 if a part failed: its rows say so, the others are kept."""
    folder = Path(config["paths"]["runs"]) / config["paper"] / config["scale"]["name"]
    (folder / "parts").mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=0):
            return _run(config, ablation, folder)
    except Timeout:
        print(f"error: {folder} is being written by another process: wait for it, or stop it", file=sys.stderr)
        return 1


def _run(config: Config, ablation: Sequence[str], folder: Path) -> int:
    started, failed = datetime.now(UTC).isoformat(timespec="seconds"), dict.fromkeys(config["rows"], "")
    parts: dict[str, dict[str, Any]] = {}
    for name, settings in config["parts"].items():
        label = "+".join([name, *ablation])
        file = folder / "parts" / f"{folder_name(label, config['seed'])}.json"
        try:
            parts[name] = part(name, settings, config, file)
        except Exception as error:  # noqa: BLE001 - whatever it is: the rest goes on, the rows say it
            reason = f"{name}: {type(error).__name__}: {error}. "
            for row in rows_of(settings, failed.keys()):
                failed[row] += reason
            file.with_suffix(".error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            print(f"error: {reason}(traceback in {file.with_suffix('.error.txt')})", file=sys.stderr)
    places = {
        label: write_row(config, ablation, folder, row, label, parts, started, failed[row])
        for row, label in config["rows"].items()
    }
    if config["logger"]["kind"] == "wandb":
        from reproductions.log_measured import log_measured

        log_measured(config, folder, places)
    return 1 if any(failed.values()) else 0


def rows_of(settings: Config, rows: Collection[str]) -> Collection[str]:
    """Those that a part's settings name, as keys or values of any level; all where they name none."""
    named = {word for entry in entries(settings) for word in map(str, entry) if word in rows}
    return named or rows


def entries(settings: Any) -> Iterator[tuple[Any, Any]]:
    """Keys, or places, and values of all levels."""
    if not isinstance(settings, Mapping | list):
        return
    for key, value in settings.items() if isinstance(settings, Mapping) else enumerate(settings):
        yield key, value
        yield from entries(value)


def weights_of(settings: Config) -> list[str]:
    """sha256 of the tested weights of the runs that a part reads, under the key `run`."""
    files = [Path(str(value)) / "tested.ckpt" for key, value in entries(settings) if key == "run"]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()]


def part(name: str, settings: Config, config: Config, file: Path) -> dict[str, Any]:
    """The rows of a part, from its file if that is of the same settings, sources and runs, and what they cost."""
    read = [settings, config["seed"], provenance.source_hash(settings), *weights_of(settings)]
    key = hashlib.sha256(json.dumps(read).encode()).hexdigest()
    if file.exists() and not config["fresh"]:
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored["key"] == key:
            print(f"measured before: {name}", flush=True)
            return stored
    print(f"measuring: {name}", flush=True)
    clock = time.perf_counter()
    rows = instantiate(settings)(config["seed"])
    seconds = time.perf_counter() - clock
    found = {"key": key, "rows": rows, "seconds": seconds, "peak_memory_bytes": provenance.peak_memory("cpu")}
    write_json(file, found)
    print(f"measured: {name} ({seconds:.0f} s)", flush=True)
    return found


def row_config(config: Config, ablation: Sequence[str], row: str, label: str) -> Config:
    """The configuration of one row, named after the overrides that touch the science."""
    suffix = f"+{','.join(ablation)}" if ablation else ""
    return config | {"row": row + suffix, "label": label + suffix, "table_id": "measured"}


def write_row(
    config: Config,
    ablation: Sequence[str],
    folder: Path,
    row: str,
    label: str,
    parts: Mapping[str, Mapping[str, Any]],
    started: str,
    failed: str,
) -> Path:
    """Returns its folder."""
    named = row_config(config, ablation, row, label)
    place = folder / folder_name(named["row"], config["seed"])
    place.mkdir(exist_ok=True)
    samples = {name: s for part in parts.values() for name, s in part["rows"].get(row, {}).items()}
    scored = samples.pop(SCORED, {"facts": {}, "lines": {}})
    write_json(place / "samples.json", samples)
    for name, records in scored["lines"].items():
        write_lines(place / name, records)
    (place / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    spent = {
        "started": started,
        "seconds": sum(part["seconds"] for part in parts.values()),
        "peak_memory_bytes": max((part["peak_memory_bytes"] for part in parts.values()), default=0),
    }
    status = {"status": "failed", "error": failed} if failed else {"status": "ok"}
    write_json(place / "result.json", provenance.head(named, ablation) | scored["facts"] | spent | status)
    write_manifest(place)
    return place
