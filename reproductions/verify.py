"""python -m reproductions.verify run=FOLDER [again=true]: whether a finished run is what it says.

Its files are as it left them; its configuration, sources and data are those of its hashes; its scores are what its stored
outputs give: translations are scored again, items of text are summed again. again=true trains it once more
beside the runs and compares the scores, which are the same to the last digit on the same machine.
Exit code: 0; 1 and a line a finding where something differs; 2 for a wrong argument.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from reproductions import provenance
from reproductions.manifest import changes

Config = dict[str, Any]


def findings(folder: Path) -> Iterator[str]:
    """What is wrong. Raises ValueError where it is no folder of a finished run."""
    if not (folder / "result.json").is_file():
        raise ValueError(f"{folder}: expected the folder of a finished run, runs/<paper>/<scale>/<row>-s<seed>")
    changed = list(changes(folder))
    if changed:
        yield from changed
        return
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    config: Config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    trained = "trainer" in config
    if trained and (got := provenance.config_hash(config)) != result["config_hash"]:
        yield f"{folder / 'config.yaml'}: its hash is {got[:12]}, result.json says {result['config_hash'][:12]}"
    if (got := provenance.source_hash(config)) != result["source_hash"]:
        yield f"sources: the present ones are {got[:12]}, the run was of {result['source_hash'][:12]}"
    if trained:
        yield from _data(config, result)
        yield from _scores(folder, config, result)


def _data(config: Config, result: Mapping[str, Any]) -> Iterator[str]:
    from hydra.utils import instantiate

    data = instantiate(config["data"])
    data.prepare()
    if data.checksum != result["data_checksum"]:
        yield f"{data.folder}: checksum {data.checksum[:12]}, the run was of {result['data_checksum'][:12]}"


def _scores(folder: Path, config: Config, result: Mapping[str, Any]) -> Iterator[str]:
    """Of the outputs; a score that no output gives is not compared."""
    from reproductions.job import task_of
    from reproductions.rescore import rescored
    from reproductions.tasks.text import TextTask

    found: dict[str, float] = {}
    for file in sorted((folder / "sentences").glob("*.jsonl")):
        try:
            scores = rescored(file)
        except ValueError as error:
            yield str(error)
            continue
        found |= {f"{file.stem}/{name}": score.value for name, score in scores.items()}
    task = task_of(config)
    if isinstance(task, TextTask):
        for file in sorted((folder / "items").glob("*.jsonl")):
            records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
            found |= {f"{file.stem}/{name}": score.value for name, score in task.scores(records).items()}
    for name in sorted(found.keys() & result["metrics"].keys()):
        stored = result["metrics"][name]["value"]
        if abs(found[name] - stored) > 1e-9 * max(1.0, abs(stored)):
            yield f"{name}: result.json says {stored}, its outputs give {found[name]}"


def again(folder: Path) -> Iterator[str]:
    """Run it once more, elsewhere; what differs."""
    from reproductions.compose import Job
    from reproductions.launcher import work

    config: Config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if "trainer" not in config:
        raise ValueError(f"{folder}: measured, not trained: make repro-{result['paper']} FRESH=1 measures again")
    with tempfile.TemporaryDirectory() as runs:
        job = Job((), config | {"paths": {**config["paths"], "runs": runs}, "logger": {"kind": "csv"}}, ())
        if work(job):
            yield f"{folder}: failed when it was run again"
            return
        metrics = json.loads((job.folder / "result.json").read_text(encoding="utf-8"))["metrics"]
    for name, stored in result["metrics"].items():
        if metrics[name]["value"] != stored["value"]:
            yield f"{name}: {stored['value']} then, {metrics[name]['value']} now"


def main(argv: Sequence[str]) -> int:
    given = dict(argument.split("=", 1) for argument in argv if "=" in argument)
    if len(given) < len(argv) or given.keys() - {"run", "again"} or "run" not in given:
        print(f"error: got {' '.join(argv)!r}, expected run=FOLDER [again=true]", file=sys.stderr)
        return 2
    folder, count = Path(given["run"]), 0
    try:
        for finding in findings(folder):
            print(finding)
            count += 1
        if given.get("again") == "true" and not count:
            for finding in again(folder):
                print(finding)
                count += 1
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{folder}: {'as it was' if not count else f'{count} findings'}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
