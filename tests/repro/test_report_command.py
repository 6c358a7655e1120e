"""python -m reproductions.report: arguments, files, exit codes, and what may be tracked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reproductions.report import GitState, git_state, make_report, parse, refusals, run, update_tracked, write_report
from tests.common.report.fake_runs import FakeRuns

ROOT = Path(__file__).parents[2]
VERDICTS = "<!-- verdicts:start -->\n<!-- verdicts:end -->\n"
README = f"# Title\n<!-- results:bahdanau:start -->\n<!-- results:bahdanau:end -->\n{VERDICTS}"
CLEAN = GitState(changed=(), contains=lambda commit: True)


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(root), *identity, *arguments], capture_output=True, text=True, check=True
    ).stdout


def current(config: object) -> str:
    """The hash that the fake runs carry."""
    return "5f3a9c21"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a paper, its runs below an ignored folder, all committed."""
    root = tmp_path_factory.mktemp("checkout")
    folder = root / "reproductions" / "bahdanau"
    folder.mkdir(parents=True)
    for name in ("published.yaml", "claims.yaml"):
        shutil.copy(ROOT / "reproductions" / "bahdanau" / name, folder)
    (root / "README.md").write_text(README)
    (root / ".gitignore").write_text("runs/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    fake = FakeRuns(root / "runs", sizes={"test": 40, "test_long": 80}, seeds=(1,))
    fake.build()
    for file in (root / "runs").glob("*/*/*/result.json"):
        record = json.loads(file.read_text())
        file.write_text(json.dumps(record | {"git_commit": git(root, "rev-parse", "HEAD").strip()}))
    return root


@pytest.fixture
def checkout(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def change(checkout: Path, run: str, **changes: object) -> None:
    """Change a result.json; None takes the key out."""
    file = checkout / "runs" / "bahdanau" / "small" / run / "result.json"
    record = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in record.items() if value is not None}))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["papr=bahdanau"], "unknown argument 'papr', did you mean paper?"),
        (["paper=bahdanu"], "paper=bahdanu: did you mean bahdanau?"),
        (["paper=bahdanau", "scale=smal"], "scale=smal: did you mean small?"),
        (["bahdanau"], "got 'bahdanau', expected key=value as in paper=bahdanau scale=small"),
        (["paper="], "got 'paper=', expected key=value"),
        ([], "paper= is missing, expected one of bahdanau"),
        (["paper=bahdanau", "results=yes"], "results=yes: expected one of false, true"),
    ],
)
def test_wrong_arguments_are_explained(
    checkout: Path, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(ValueError) as error:
        parse(argv, checkout)
    assert str(error.value).startswith(message)
    assert run(argv, current, checkout) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_defaults(checkout: Path):
    arguments = parse(["paper=bahdanau"], checkout)
    assert (arguments.scale, arguments.results) == ("small", False)
    assert arguments.runs == checkout / "runs"
    assert arguments.out == checkout / "runs" / "bahdanau" / "small"


def test_a_report_is_printed_and_written(checkout: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["paper=bahdanau"], current, checkout) == 0
    out = checkout / "runs" / "bahdanau" / "small"
    assert (out / "RESULTS.md").read_text().startswith("# Results: Neural Machine Translation")
    assert (out / "results.csv").read_text().startswith("paper,scale,table,")
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
    printed = capsys.readouterr().out
    assert "26.75" in printed and "RNNsearch-50*" in printed and str(out / "report.html") in printed
    assert not (checkout / "reproductions" / "bahdanau" / "RESULTS.md").exists()


def test_reports_are_the_same_each_time(checkout: Path, tmp_path: Path):
    for name in ("a", "b"):
        write_report(make_report("bahdanau", "small", checkout / "runs", current, checkout), tmp_path / name)
    for file in ("RESULTS.md", "results.csv", "report.html"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_failed_row_gives_exit_code_1_and_a_report(checkout: Path, tmp_path: Path):
    change(checkout, "rnnsearch_50-s1", status="failed", error="no memory")
    assert run(["paper=bahdanau", f"out={tmp_path / 'out'}"], current, checkout) == 1
    assert "failed (seed 1): no memory" in (tmp_path / "out" / "RESULTS.md").read_text()


def test_a_contradicted_claim_is_no_failure(checkout: Path, tmp_path: Path):
    folder = checkout / "runs" / "bahdanau" / "small"
    strong, weak = (folder / f"{row}-s1" / "sentences" for row in ("rnnsearch_50", "rnnencdec_50"))
    strong.rename(folder / "aside")
    weak.rename(strong)
    (folder / "aside").rename(weak)
    assert run(["paper=bahdanau", f"out={tmp_path / 'out'}"], current, checkout) == 0
    assert "✗ contradicted" in (tmp_path / "out" / "RESULTS.md").read_text()


def test_a_broken_result_is_an_error_that_names_it(checkout: Path, capsys: pytest.CaptureFixture[str]):
    change(checkout, "rnnsearch_50-s1", config_hash=None)
    assert run(["paper=bahdanau"], current, checkout) == 2
    assert "rnnsearch_50-s1/result.json: config_hash: missing" in capsys.readouterr().err


def test_results_are_tracked(checkout: Path):
    assert run(["paper=bahdanau", "results=true"], current, checkout) == 0
    tracked = (checkout / "reproductions" / "bahdanau" / "RESULTS.md").read_text()
    assert tracked == (checkout / "runs" / "bahdanau" / "small" / "RESULTS.md").read_text()
    assert "| RNNsearch-50 |" in (checkout / "README.md").read_text()
    # Again: what the first time wrote is no uncommitted change.
    assert run(["paper=bahdanau", "results=true"], current, checkout) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_hash": "older"}, "rnnsearch_50-s1: made by another version of the sources"),
        (
            {"data_checksum": "other"},
            "Table 1, Table 2, Figure 2: runs on different data: checksums 9605a855220e9b8c, other",
        ),
        ({"git_dirty": True}, "rnnsearch_50-s1: made with uncommitted changes"),
        ({"git_commit": "0" * 40}, f"rnnsearch_50-s1: made at commit {'0' * 40}, which this history does not hold"),
        ({"git_commit": None}, "rnnsearch_50-s1: made outside a checkout"),
        ({"status": "failed", "error": "no memory"}, "rnnsearch_50-s1: failed: no memory"),
    ],
)
def test_a_run_that_is_not_of_the_commit_is_refused(
    checkout: Path, changes: dict, message: str, capsys: pytest.CaptureFixture[str]
):
    change(checkout, "rnnsearch_50-s1", **changes)
    assert run(["paper=bahdanau", "results=true"], current, checkout) == 1
    assert f"- {message}" in capsys.readouterr().err
    assert not (checkout / "reproductions" / "bahdanau" / "RESULTS.md").exists()
    assert (checkout / "README.md").read_text() == README


def test_uncommitted_sources_are_refused(checkout: Path, capsys: pytest.CaptureFixture[str]):
    with (checkout / "reproductions" / "bahdanau" / "claims.yaml").open("a") as file:
        file.write("# a change\n")
    assert run(["paper=bahdanau", "results=true"], current, checkout) == 1
    assert "- uncommitted change: reproductions/bahdanau/claims.yaml" in capsys.readouterr().err


def test_no_run_at_all_is_refused(checkout: Path):
    report = make_report("bahdanau", "paper", checkout / "runs", current, checkout)
    rows = ("rnnencdec_30", "rnnsearch_30", "rnnencdec_50", "rnnsearch_50", "rnnsearch_50_star")
    expected = [*(f"{row}: not run" for row in rows), f"no finished run in {checkout}/runs/bahdanau/paper"]
    assert refusals(report, CLEAN) == expected


def test_a_table_with_a_row_missing_is_refused(checkout: Path):
    for folder in (checkout / "runs" / "bahdanau" / "small").glob("rnnsearch_30-s*"):
        shutil.rmtree(folder)
    report = make_report("bahdanau", "small", checkout / "runs", current, checkout)
    assert refusals(report, CLEAN) == ["rnnsearch_30: not run"]


def test_generated_text_has_a_page_of_its_own_and_is_not_in_the_readme(checkout: Path):
    head = git(checkout, "rev-parse", "HEAD").strip()
    FakeRuns(checkout / "runs", scale="smoke", seeds=(1,), sizes={"test": 20, "test_long": 20}).build()
    for file in (checkout / "runs").glob("*/smoke/*/result.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"git_commit": head}))
    assert run(["paper=bahdanau", "scale=smoke", "results=true"], current, checkout) == 0
    assert (checkout / "reproductions" / "bahdanau" / "RESULTS.smoke.md").is_file()
    assert not (checkout / "reproductions" / "bahdanau" / "RESULTS.md").exists()
    assert (checkout / "README.md").read_text() == README


def test_a_readme_without_markers_changes_nothing(checkout: Path):
    (checkout / "README.md").write_text("# Title\n")
    report = make_report("bahdanau", "small", checkout / "runs", current, checkout)
    with pytest.raises(ValueError, match=r"README\.md: expected <!-- verdicts:start -->"):
        update_tracked(report, checkout)
    assert not (checkout / "reproductions" / "bahdanau" / "RESULTS.md").exists()


def test_ablations_of_the_users_own_are_not_tracked_nor_in_the_way(checkout: Path):
    fake = FakeRuns(checkout / "runs", sizes={"test": 40, "test_long": 80}, seeds=(1,))
    fake.write(
        "rnnsearch_50+mine", 1, label="RNNsearch-50+mine", ablation=["mine"], source_hash="older", git_dirty=True
    )
    report = make_report("bahdanau", "small", checkout / "runs", current, checkout)
    assert report.ablations is not None
    assert refusals(report, CLEAN) == []


def test_outside_a_work_tree_nothing_is_tracked(tmp_path: Path):
    with pytest.raises(ValueError, match="expected a git work tree"):
        git_state(tmp_path)


def test_the_report_loads_neither_torch_nor_anything_heavy():
    heavy = "{'torch', 'pytorch_lightning', 'hydra', 'wandb'}"
    code = f"import sys, reproductions.report, reproductions.provenance; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_stale_rows_are_shown_as_stale(checkout: Path):
    report = make_report("bahdanau", "small", checkout / "runs", lambda config: "new", checkout)
    assert all(row.stale for row in report.results.papers)
    assert report.warnings[0].startswith("stale")
