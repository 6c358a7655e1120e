"""Results of runs: runs/<paper>/<scale>/<row>-s<seed>/result.json and the files beside it.

A row that is trained and scored leaves its sentences there; a row that is measured, samples.json.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from common.naming import folder_name
from common.report.heads import Heads, read_heads
from common.report.measures import Field, Measure
from common.report.samples import Samples, read_samples
from common.report.schema import Node, load_yaml
from common.report.scores import Array
from common.report.sentences import Alignment, Items, item_file, read_alignments, read_sentences

SourceHash = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, eq=False)
class Run:
    """One row trained or measured with one seed. `record` is the whole result.json; `samples` by quantity."""

    folder: Path
    row: str
    label: str
    seed: int
    ok: bool
    error: str
    ablation: tuple[str, ...]
    stale: bool
    record: Mapping[str, Any]
    samples: Mapping[str, Samples] = field(default_factory=dict)
    _cache: dict[Path, Items] = field(default_factory=dict, repr=False)

    def field(self, path: str) -> Any:
        """The value at a dotted path of result.json, or None."""
        value: Any = self.record
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def number(self, reading: Field) -> float | None:
        """The number a field reading names, times its factor; None where the run has none."""
        value = self.field(reading.path)
        return float(value) * reading.factor if isinstance(value, (int, float)) else None

    def items(self, measure: Measure) -> Items | None:
        """The test items a measure reads, or None where the run left no such file."""
        file, reader = item_file(self.folder, measure)
        if file not in self._cache:
            if not file.is_file():
                return None
            self._cache[file] = reader(file)
        return self._cache[file]

    def add_statistics(self, file: Path, statistics: Mapping[str, Array], signatures: Mapping[str, str]) -> None:
        """Take further statistics of a sentences file, a row a sentence in file order, and the scorers' signatures."""
        items = self._cache.get(file) or read_sentences(file)
        self._cache[file] = replace(items, statistics={**items.statistics, **statistics}, signatures=signatures)

    @property
    def text_checksum(self) -> Any:
        """That of the pairs, whatever pieces their words are cut into; None where a measured row has no data."""
        return self.field("data.text_checksum") or self.field("data_checksum")

    def alignments(self) -> list[Alignment]:
        """The drawn alignments, empty where the run has none."""
        file = self.folder / "alignments.json"
        return read_alignments(file) if file.is_file() else []

    def heads(self) -> list[Heads]:
        """What every head looks at, empty where the run has no such file."""
        file = self.folder / "heads.json"
        return read_heads(file) if file.is_file() else []

    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """Columns of curves.csv against target tokens: name -> [(target tokens, value)], blanks left out."""
        file = self.folder / "curves.csv"
        curves: dict[str, list[tuple[float, float]]] = {}
        if file.is_file():
            with file.open(newline="", encoding="utf-8") as handle:
                for line in csv.DictReader(handle):
                    for name, text in line.items():
                        if text:
                            curves.setdefault(name, []).append((float(line["target_tokens"]), float(text)))
        return curves

    @property
    def max_words(self) -> int | None:
        """The longest sentence this run was trained on (data.max_words of its config); None where it has no limit."""
        limit = read_config(self.folder).get("data", {}).get("max_words")
        return limit if isinstance(limit, int) else None

    @property
    def command(self) -> str:
        """A shell line that makes this run again: the recorded one, else the make target."""
        recorded = self.field("command")
        if recorded:
            return str(recorded)
        base = self.row.split("+")[0]
        extra = f' ARGS="{" ".join(self.ablation)}"' if self.ablation else ""
        return f"make repro-{self.record['paper']} SCALE={self.record['scale']} ROW={base} SEEDS={self.seed}{extra}"


@dataclass(frozen=True)
class Row:
    """All runs of one row, by seed."""

    id: str
    runs: tuple[Run, ...]

    @property
    def ok(self) -> list[Run]:
        """The runs that finished."""
        return [run for run in self.runs if run.ok]

    @property
    def failed(self) -> list[Run]:
        """The runs that failed."""
        return [run for run in self.runs if not run.ok]

    @property
    def label(self) -> str:
        """The name to show."""
        return self.runs[0].label

    @property
    def base(self) -> str | None:
        """The row that this ablation line changes; None for a row of the paper."""
        return self.id.split("+")[0] if self.runs[0].ablation or "+" in self.id else None

    @property
    def stale(self) -> bool:
        """Whether any run was made by another version of the sources."""
        return any(run.stale for run in self.runs)


@dataclass(frozen=True)
class Results:
    """Rows by id; `unfinished` names folders without a result.json."""

    paper: str
    scale: str
    folder: Path
    rows: Mapping[str, Row]
    unfinished: tuple[str, ...]

    @property
    def papers(self) -> list[Row]:
        """Rows of the paper's own tables."""
        return [row for row in self.rows.values() if row.base is None]

    @property
    def ablations(self) -> list[Row]:
        """Lines a user added; never mixed with the paper's rows."""
        return [row for row in self.rows.values() if row.base is not None]

    @property
    def runs(self) -> list[Run]:
        """Every run."""
        return [run for row in self.rows.values() for run in row.runs]


def read_config(folder: Path) -> Mapping[str, Any]:
    """The resolved config of a run; empty where it has none."""
    file = folder / "config.yaml"
    return load_yaml(file).data if file.is_file() else {}


def load_results(runs: Path, paper: str, scale: str, source_hash: SourceHash, others: Iterable[str] = ()) -> Results:
    """Read every run of a paper at a scale. `source_hash(config)` is that of the present code: with another one, stale.

    others: rows of other papers, `<paper>/<row>`, which are read as well and keep that name. An absent folder gives no
    rows. Raises ValueError for a result.json that breaks the format.
    """
    folder = runs / paper / scale
    loaded: list[Run] = []
    unfinished: list[str] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_dir() and "-s" in path.name:
            if (path / "result.json").is_file():
                loaded.append(read_run(path, paper, scale, source_hash))
            else:
                unfinished.append(path.name)
    rows = _group(loaded) | _rows_of_others(runs, scale, source_hash, others)
    return Results(paper, scale, folder, rows, tuple(unfinished))


def _rows_of_others(runs: Path, scale: str, source_hash: SourceHash, names: Iterable[str]) -> dict[str, Row]:
    """Those that have runs, under their full names."""
    found: dict[str, Row] = {}
    asked = [(name, *name.split("/")) for name in names]
    for paper in dict.fromkeys(paper for _, paper, _ in asked):
        rows = load_results(runs, paper, scale, source_hash).rows
        for name, _, row in (each for each in asked if each[1] == paper and each[2] in rows):
            found[name] = Row(name, tuple(replace(run, row=name) for run in rows[row].runs))
    return found


def _group(runs: Iterable[Run]) -> dict[str, Row]:
    by_row: dict[str, list[Run]] = {}
    for run in runs:
        by_row.setdefault(run.row, []).append(run)
    return {row: Row(row, tuple(sorted(members, key=lambda run: run.seed))) for row, members in by_row.items()}


def read_run(folder: Path, paper: str, scale: str, source_hash: SourceHash) -> Run:
    """Read one run. Raises ValueError where its result.json breaks the format or does not fit the folder's path."""
    file = folder / "result.json"
    try:
        node = Node(json.loads(file.read_text(encoding="utf-8")), file)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not valid JSON: {error}") from error
    row, seed = node.text("row"), node.get("seed", int)
    for key, got, expected in (
        ("paper", node.text("paper"), paper),
        ("scale", node.text("scale"), scale),
        ("row, seed", folder_name(row, seed), folder.name),
    ):
        if got != expected:
            raise node.error(key, f"got {got!r}, expected {expected!r} from the folder's path")
    ok = node.choice("status", ("ok", "failed")) == "ok"
    measured = (folder / "samples.json").is_file()
    if ok:
        node.text("config_hash")
        if not measured:
            node.text("data_checksum")
            node.child("metrics")
    return Run(
        folder=folder,
        row=row,
        label=node.text("label"),
        seed=seed,
        ok=ok,
        error="" if ok else node.text("error"),
        ablation=node.texts("ablation", ()),
        stale=ok and node.text("source_hash") != source_hash(read_config(folder)),
        record=node.data,
        samples=read_samples(folder / "samples.json") if ok and measured else {},
    )
