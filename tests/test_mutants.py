"""The runner of `python -m tests.mutants`: what counts as noticed and what does not, on a small tree of its own."""

import ast
import functools
import re
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.__main__ import AT_ONCE, ROOT, main
from tests.mutants.fault import Fault
from tests.mutants.faults import FAULTS
from tests.mutants.process import judge

TESTS = "tests/test_sums.py::"
BOTH = (TESTS + "test_double", TESTS + "test_negative")
FILES = {
    "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\n",
    "common/__init__.py": "",
    "common/sums.py": (
        "import os\n\n\ndef double(x):\n    return x + x\n\n\n"
        "def several(error):\n    raise ExceptionGroup('several', [error])\n"
    ),
    "tests/test_sums.py": (
        "import pytest\n\nfrom common import sums\n\n\n"
        "def test_double():\n    assert sums.double(3) == 6\n\n\n"
        "def test_negative():\n    assert sums.double(-1) == -2\n\n\n"
        "def test_wrong():\n    assert sums.double(3) == 7\n\n\n"
        "@pytest.mark.skip\ndef test_skipped():\n    assert False\n"
    ),
}

run = functools.partial(main, imported=())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def fault(new: str, *, old: str = "x + x", tests: tuple[str, ...] = BOTH, count: int = 1) -> Fault:
    return Fault("a fault", "common/sums.py", old, new, tests, count)


NOTICED = {
    "by the first test": ("x * x", BOTH, "caught", "test_sums.py::test_double"),
    "by the second": ("abs(x) * 2", BOTH, "caught", "test_sums.py::test_negative"),
    "by an error of values": ("[6][x - 3]", BOTH, "caught", "test_sums.py::test_negative (IndexError)"),
    "by several errors": ("several(ValueError())", BOTH, "caught", "test_sums.py::test_double (ValueError)"),
    "by a crash": ("os.kill(os.getpid(), 11)", BOTH, "crash", "test_sums.py::test_double (SIGSEGV)"),
}

PROVES_NOTHING = {
    "no Python": (fault("x +"), "does not apply: common/sums.py then is no Python"),
    "a name that is not there": (fault("x + y"), "a mistake in test_sums.py::test_double (NameError)"),
    "a mistake among several": (fault("several(NameError())"), "a mistake in test_sums.py::test_double (NameError)"),
    "a file that does not load": (
        fault("import oss", old="import os"),
        "collect of test_sums.py (ModuleNotFoundError)",
    ),
    "ended from outside": (fault("os.kill(os.getpid(), 9)"), "ended by SIGKILL in test_sums.py::test_double"),
    "no end": (fault("[x for x in iter(int, 1)]"), "ended by SIGXCPU in test_sums.py::test_double"),
    "text not found": (fault("1", old="y + y"), "does not apply: common/sums.py: got 0 of 'y + y', expected 1"),
    "text found less often": (
        fault("z", old="return", count=2),
        "does not apply: common/sums.py: got 1 of 'return', expected 2",
    ),
    "text found twice": (fault("z", old="def "), "does not apply: common/sums.py: got 2 of 'def ', expected 1"),
    "no change": (fault("x + x"), "does not apply: 'x + x' becomes what it is"),
}


def outcome(tree: Path, capsys: pytest.CaptureFixture[str], planted: Fault) -> tuple[int, list[str]]:
    """Exit code and lines of a run, which leaves the tree as it was."""
    code = run([], tree, [planted], limit=2)
    assert {name: (tree / name).read_text() for name in FILES} == FILES
    assert sorted(str(f.relative_to(tree)) for f in tree.rglob("*") if f.is_file()) == sorted(FILES)
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("new", "tests", "verdict", "detail"), NOTICED.values(), ids=NOTICED.keys())
def test_noticed(
    tree: Path, capsys: pytest.CaptureFixture[str], new: str, tests: tuple[str, ...], verdict: str, detail: str
):
    code, (line, summary) = outcome(tree, capsys, fault(new, tests=tests))
    assert code == 0 and line.startswith(f"{verdict} ") and line.endswith(f" {detail}")
    assert summary.startswith("1 faults: 1 caught, 0 crash" if verdict == "caught" else "1 faults: 0 caught, 1 crash")


def test_what_changes_nothing_survives(tree: Path, capsys: pytest.CaptureFixture[str]):
    """And no bytecode is written, from which the next fault of the same size and second would be taken."""
    code, (line, summary) = outcome(tree, capsys, fault("2 * x * bool(os.environ['PYTHONDONTWRITEBYTECODE'])"))
    assert code == 1 and line.startswith("SURVIVES ") and line.endswith(" all 2 tests") and "1 survive" in summary


@pytest.mark.parametrize(("planted", "detail"), PROVES_NOTHING.values(), ids=PROVES_NOTHING.keys())
def test_no_proof(tree: Path, capsys: pytest.CaptureFixture[str], planted: Fault, detail: str):
    code, (line, summary) = outcome(tree, capsys, planted)
    assert code == 1 and line.startswith("PROVES NOTHING ") and detail in line and "1 prove nothing" in summary


@pytest.mark.parametrize(
    ("test", "detail"),
    [
        ("test_wrong", "test_sums.py::test_wrong"),
        ("test_skipped", "test_sums.py::test_skipped is skipped"),
        ("test_none", "pytest ended with 4: ERROR: not found"),
    ],
)
def test_tests_that_do_not_pass_anyway(tree: Path, capsys: pytest.CaptureFixture[str], test: str, detail: str):
    """They would fail with any fault."""
    code, (line,) = outcome(tree, capsys, fault("x * x", tests=(*BOTH, TESTS + test)))
    assert code == 1 and line.startswith("the unchanged tree does not pass") and detail in line


def test_many_tests_of_the_unchanged_tree_share_no_processes_limit(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
):
    """As one process's limit of computing time is for the tests of one fault."""
    shared, count = tmp_path_factory.mktemp("shared") / "processes", 3 * AT_ONCE
    noting = "\n\ndef test_{}():\n    with open({!r}, 'a') as out:\n        out.write(f'{{sums.os.getpid()}}\\n')\n"
    with (tree / "tests/test_sums.py").open("a", encoding="utf-8") as file:
        file.writelines(noting.format(n, str(shared)) for n in range(count))
    assert run([], tree, [fault("x * x", tests=(*BOTH, *(f"{TESTS}test_{n}" for n in range(count))))]) == 0
    processes = Counter(shared.read_text().split())
    assert sum(processes.values()) == count and max(processes.values()) <= AT_ONCE


def test_one_fault_leaves_nothing_behind_for_the_next(tree: Path, capsys: pytest.CaptureFixture[str]):
    """More faults than copies of the tree, the same size and within a second. Files that they make are not in the tree."""
    changes = ("x * x", "x - x", "x + 1", "2 * x", "x + 2", "2 + x")
    assert run([], tree, [fault(f"open('made', 'w').write('') or {new}") for new in changes]) == 1
    assert not (tree / "made").exists()
    verdicts = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["caught", "caught", "caught", "SURVIVES", "caught", "caught", "6"]


def test_faults_are_chosen_by_name_or_file(tree: Path, capsys: pytest.CaptureFixture[str]):
    faults = [fault("x * x"), replace(fault("2 * x"), name="no effect")]
    for words, code, lines in ((["fau"], 0, 2), (["effect"], 1, 2), (["sums.py"], 1, 3), (["effect", "fau"], 1, 3)):
        assert run(words, tree, faults) == code
        assert len(capsys.readouterr().out.splitlines()) == lines
    assert run(["fau", "other"], tree, faults) == 2
    assert "no such fault: other: expected a part" in capsys.readouterr().err


def test_shares_are_all_faults_together(tree: Path, capsys: pytest.CaptureFixture[str]):
    faults = [replace(fault(f"x * x + {n}"), name=f"fault {n}") for n in range(5)]
    names = []
    for part in ("1/2", "2/2"):
        assert run([f"share={part}"], tree, faults) == 0
        names.append(re.findall(r"fault \d", capsys.readouterr().out))
    assert names == [["fault 0", "fault 2", "fault 4"], ["fault 1", "fault 3"]]
    assert run(["share=6/6"], tree, faults) == 2 and "no fault left of 5" in capsys.readouterr().err
    assert run(["share=0/4"], tree, faults) == 2 and "no such fault: share=0/4" in capsys.readouterr().err


def test_modules_of_another_tree_prove_nothing():
    events = [{"event": "start", "test": "t.py::a"}, {"event": "stray", "test": "common.sums"}]
    assert judge(0, events).detail == "common.sums was not loaded from the copy"
    assert judge(-signal.SIGSEGV, []).kind == "broken"


@pytest.mark.parametrize("listed", FAULTS, ids=lambda listed: listed.name)
def test_a_listed_fault_applies(listed: Fault):
    """Without running it: its text is there and changes, and its tests exist."""
    assert listed.applied(ROOT) != (ROOT / listed.file).read_text(encoding="utf-8")
    assert [other.name for other in FAULTS].count(listed.name) == 1 and listed.tests
    for test in listed.tests:
        file, function = test.split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert function.split("[")[0] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
