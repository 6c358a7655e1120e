"""python -m reproductions.report paper=bahdanau scale=small [runs=runs] [out=FOLDER] [rescore=true] [results=true]

Joins reproductions/<paper>/published.yaml, claims.yaml and measured/*.json with the runs, prints the table and the
verdicts, and writes RESULTS.md, results.csv and report.html. Needs neither torch nor a network. rescore=true scores the
stored translations again, without a model: it refuses runs whose stored statistics their texts do not give, and shows
the same translations under every scorer that published numbers name. results=true also
updates the tracked reproductions/<paper>/RESULTS.md, the runs behind it (reproductions/archive.py) and README.md (of smoke
runs a page of its own, RESULTS.smoke.md), and refuses runs that are not those of the commit.
Exit code: 0; 1 if a row failed or was refused; 2 for a wrong argument. A broken claim is a verdict, not an error.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.report.claims import load_claims
from common.report.elsewhere import load_benches
from common.report.join import build_report, mixed_data
from common.report.measures import SCALES
from common.report.published import load_published, of_another_paper
from common.report.render.long_csv import long_csv
from common.report.render.markdown import markdown
from common.report.render.page import page
from common.report.render.readme import insert_matrix, insert_results
from common.report.render.terminal import terminal
from common.report.results import SourceHash, load_results
from common.report.schema import near
from common.report.stored import StoredResults, read_stored
from common.report.views import Report
from reproductions import archive

ROOT = Path(__file__).resolve().parent.parent
# May differ from the commit while results are updated: it is what the update writes.
GENERATED = ("README.md", "RESULTS.md", "RESULTS.smoke.md", "runs.small.tar.xz", "runs.paper.tar.xz")
KEYS = ("paper", "scale", "runs", "out", "rescore", "results")


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    paper: str
    scale: str
    runs: Path
    out: Path
    rescore: bool
    results: bool


def parse(argv: Sequence[str], root: Path = ROOT) -> Arguments:
    """Read key=value arguments. Raises ValueError for an unknown key or value, with near matches."""
    given: dict[str, str] = {}
    for argument in argv:
        key, equals, value = argument.partition("=")
        if not equals or not value:
            raise ValueError(f"got {argument!r}, expected key=value as in paper=bahdanau scale=small")
        if key not in KEYS:
            raise ValueError(f"unknown argument {key!r}, {near(key, KEYS)}")
        given[key] = value
    papers = sorted(path.parent.name for path in (root / "reproductions").glob("*/published.yaml"))
    paper = _choice("paper", given.get("paper"), papers)
    scale = _choice("scale", given.get("scale", "small"), SCALES)
    rescore, results = (_choice(key, given.get(key, "false"), ("true", "false")) == "true" for key in KEYS[-2:])
    runs = Path(given.get("runs", root / "runs"))
    return Arguments(paper, scale, runs, Path(given.get("out", runs / paper / scale)), rescore, results)


def _choice(key: str, value: str | None, choices: Sequence[str]) -> str:
    if value is None:
        raise ValueError(f"{key}= is missing, expected one of {', '.join(choices)}")
    if value not in choices:
        raise ValueError(f"{key}={value}: {near(value, choices)}")
    return value


def make_report(
    paper: str, scale: str, runs: Path, source_hash: SourceHash, root: Path = ROOT, *, again: bool = False
) -> Report:
    """Join published.yaml, claims.yaml, the runs and what was measured elsewhere (measured/*.json).

    `source_hash(config)` is that of the present code it runs; `again`: score the stored sentences again.
    """
    folder = root / "reproductions" / paper
    published = load_published(folder / "published.yaml")
    claims = load_claims(folder / "claims.yaml", published)
    results = load_results(runs, paper, scale, source_hash, published.rows_of_others)
    if again:
        from reproductions.rescore import rescore  # sacreBLEU: no other report waits for it

        print(f"scored again: {rescore(results)} files of sentences", flush=True)
    return build_report(published, claims, results, benches=load_benches(folder / "measured"))


def write_report(report: Report, out: Path) -> list[Path]:
    """Write the three files of a report and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in (
        ("RESULTS.md", markdown(report)),
        ("results.csv", long_csv(report)),
        ("report.html", page(report)),
    ):
        (out / name).write_text(text, encoding="utf-8")
        written.append(out / name)
    return written


def update_tracked(report: Report, root: Path = ROOT) -> None:
    """Write reproductions/<paper>/RESULTS.md, the runs behind it in one file, and the table between the markers of README.md.

    Generated text is no result of the paper's: smoke runs go to RESULTS.smoke.md, and README.md does not show them.

    Raises ValueError, listing every reason, where a run is not one of the current commit.
    """
    reasons = refusals(report, git_state(root))
    if reasons:
        raise ValueError("tracked results not updated:\n" + "\n".join(f"- {reason}" for reason in reasons))
    paper = report.published.paper
    if report.scale == "smoke":
        (root / "reproductions" / paper / "RESULTS.smoke.md").write_text(markdown(report), encoding="utf-8")
        return
    readme = root / "README.md"
    shown = insert_results(readme.read_text(encoding="utf-8"), report, f"reproductions/{paper}/RESULTS.md")
    insert_matrix(shown, [])  # a missing marker is said before anything is written
    (root / "reproductions" / paper / "RESULTS.md").write_text(markdown(report), encoding="utf-8")
    archive.pack(report.results, archive.archive_file(root, paper, report.scale))
    readme.write_text(insert_matrix(shown, stored_results(root)), encoding="utf-8")


def stored_results(root: Path = ROOT) -> list[StoredResults]:
    """The tracked results of every paper, the oldest paper first."""
    folders = [file.parent for file in sorted((root / "reproductions").glob("*/RESULTS.md"))]
    years = {folder: load_published(folder / "published.yaml").year for folder in folders}
    return [read_stored(folder / "RESULTS.md", folder.name) for folder in sorted(folders, key=years.__getitem__)]


@dataclass(frozen=True)
class GitState:
    """`changed`: files that differ from the commit; `contains(commit)`: whether the history holds it."""

    changed: tuple[str, ...]
    contains: Callable[[str], bool]


def git_state(root: Path) -> GitState:
    """Ask git. Raises ValueError where this is no work tree."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)

    status = git("status", "--porcelain", "--untracked-files=no")
    if status.returncode:
        raise ValueError(f"{root}: expected a git work tree: {status.stderr.strip()}")
    changed = tuple(line[3:] for line in status.stdout.splitlines() if Path(line[3:]).name not in GENERATED)
    return GitState(changed, lambda commit: git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0)


def refusals(report: Report, state: GitState) -> list[str]:
    """Why the results may not be tracked; empty where they may. Ablation lines are the user's own and do not count; rows of
    other packages may be of older sources, as their own results may."""
    reasons = [f"uncommitted change: {name}" for name in state.changed]
    runs = [run for row in report.results.papers for run in row.runs]
    absent = [
        row.id for row in report.published.tables[0].rows if not row.not_run and row.id not in report.results.rows
    ]
    reasons += [f"{row}: not run" for row in absent]
    if not any(run.ok for run in runs):
        reasons.append(f"no finished run in {report.results.folder}")
    for run in runs:
        commit = run.field("git_commit")
        if not run.ok:
            reasons.append(f"{run.folder.name}: failed: {run.error}")
        elif run.stale and not of_another_paper(run.row):
            reasons.append(f"{run.folder.name}: made by another version of the sources: run it again")
        elif run.field("git_dirty"):
            reasons.append(f"{run.folder.name}: made with uncommitted changes")
        elif commit is None:
            reasons.append(f"{run.folder.name}: made outside a checkout")
        elif not state.contains(str(commit)):
            reasons.append(f"{run.folder.name}: made at commit {commit}, which this history does not hold")
    for checksums, titles in mixed_data(report.published, report.results, ablations=False).items():
        reasons.append(f"{titles}: runs on different data: checksums {checksums}")
    return reasons


def run(argv: Sequence[str], source_hash: SourceHash, root: Path = ROOT) -> int:
    """The command; returns its exit code."""
    try:
        arguments = parse(argv, root)
        chosen = arguments.paper, arguments.scale, arguments.runs
        report = make_report(*chosen, source_hash, root, again=arguments.rescore)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(terminal(report))
    print("\nwrote " + ", ".join(map(str, write_report(report, arguments.out))))
    if arguments.results:
        try:
            update_tracked(report, root)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 1 if any(not run.ok for row in report.results.papers for run in row.runs) else 0


def main() -> int:
    """Entry point."""
    from reproductions.provenance import source_hash

    return run(sys.argv[1:], source_hash)


if __name__ == "__main__":
    sys.exit(main())
