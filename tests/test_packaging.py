"""pyproject.toml, requirements.lock, environment.yml, the Makefile and the preflight say the same thing."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from reproductions import preflight

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIME = [Requirement(r) for r in PROJECT["dependencies"]]
DEV = [Requirement(r) for r in PROJECT["optional-dependencies"]["dev"]]
LOCK_LINES = [
    line
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
LOCK = {canonicalize_name(r.name): r for r in map(Requirement, LOCK_LINES)}
LATER = {"triton"}
"""Declared for the kernels to come, imported by nothing yet."""


def locked(name: str) -> Version:
    [pin] = LOCK[canonicalize_name(name)].specifier
    return Version(pin.version)


@pytest.mark.parametrize("requirement", RUNTIME + DEV, ids=lambda r: r.name)
def test_the_lock_is_within_the_ranges(requirement: Requirement):
    assert requirement.specifier.contains(locked(requirement.name))
    assert str(LOCK[canonicalize_name(requirement.name)].marker) == str(requirement.marker)


@pytest.mark.parametrize("line", LOCK_LINES)
def test_a_lock_line_is_one_exact_public_version(line: str):
    """A freeze writes 2.13.0+cpu, which no index serves."""
    requirement = Requirement(line)
    [pin] = requirement.specifier
    assert pin.operator == "==" and "*" not in pin.version and Version(pin.version).local is None
    assert not requirement.name.startswith(("nvidia", "cuda")) and requirement.url is None


def test_torch_goes_with_its_triton():
    assert (str(locked("torch")), str(locked("triton"))) == ("2.13.0", "3.7.1")
    assert str(LOCK[canonicalize_name("triton")].marker) == 'sys_platform == "linux"'


def test_the_lock_holds_what_its_packages_need():
    """By the metadata of what is installed; the CUDA build of torch brings libraries of its own."""
    missing = []
    for pin in LOCK.values():
        try:
            needs = map(Requirement, requires(pin.name) or [])
        except PackageNotFoundError:
            assert pin.marker is not None, f"{pin.name} is locked but not installed"
            continue
        for need in needs:
            if need.marker is not None and not need.marker.evaluate({"extra": ""}):
                continue
            name = canonicalize_name(need.name)
            if name.startswith(("nvidia", "cuda")) and pin.name == "torch":
                continue
            if name not in LOCK or not need.specifier.contains(locked(name)):
                missing.append(f"{pin.name} needs {need}")
    assert missing == []


def imported(*folders: str) -> set[str]:
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    tops = {name.split(".")[0] for name in names}
    return tops - set(sys.stdlib_module_names) - {"common", "data", "reproductions", "tests"}


def distributions(modules: set[str]) -> set[str]:
    known = packages_distributions()
    return {canonicalize_name(dist) for module in modules for dist in known.get(module, [module])}


def test_what_is_imported_is_declared():
    declared = {canonicalize_name(r.name) for r in RUNTIME}
    peers = {line.split("==")[0] for line in (ROOT / "requirements-peers.lock").read_text().splitlines()}
    beside = {"joeynmt", "transformers", "performer-pytorch"}
    assert distributions(imported("common", "data", "reproductions")) - declared == beside <= peers
    assert distributions(imported("tests")) <= declared | {canonicalize_name(r.name) for r in DEV}


def test_what_is_declared_is_used():
    configured = (ROOT / "conf").rglob("*.yaml")
    targets = {t for f in configured for t in re.findall(r"_target_: (\w+)", f.read_text(encoding="utf-8"))}
    used = distributions(imported("common", "data", "reproductions") | targets)
    assert {canonicalize_name(r.name) for r in RUNTIME} - used <= LATER


def test_conda_uses_the_lock_and_a_supported_python():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    [python] = [d for d in environment["dependencies"] if isinstance(d, str) and d.startswith("python=")]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python="))
    assert {"pip": ["-r requirements.lock"]} in environment["dependencies"]
    assert len(environment["dependencies"]) == 3  # no version is written twice


def test_supported_pythons_agree():
    supported = SpecifierSet(PROJECT["requires-python"])
    for minor in range(8, 16):
        assert supported.contains(f"3.{minor}.1") == ((3, minor) in preflight.SUPPORTED)
    assert str(preflight.SUPPORTED) in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_no_file_names_a_package_index():
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "download." + "pytorch", "npmjs" + ".org", "deb.debian" + ".org"]
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    assert len(files) > 40
    found = [f"{file.name}: {host}" for file in files for host in hosts if host.encode() in file.read_bytes()]
    assert found == []


def make(*arguments: str, folder: Path = ROOT) -> str:
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, check=True, env=outside_make()
    ).stdout


def outside_make() -> dict[str, str]:
    """Without what `make test PY=... ARGS=...` hands on."""
    handed_on = {"PY", "READY", "ARGS", "MFLAGS"}
    return {name: value for name, value in os.environ.items() if name not in handed_on and not name.startswith("MAKE")}


def test_help_lists_every_target_in_a_line():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z%-]*):", text, re.MULTILINE))
    shown = set(re.findall(r"^  make (\S+) +\S", make("help"), re.MULTILINE))
    assert shown == {target.replace("%", "<paper>") for target in targets}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose path has a space in it, with one paper and a ready environment."""
    folder = tmp_path / "my checkout"
    (folder / ".venv").mkdir(parents=True)
    for name in ("reproductions/bahdanau/published.yaml", "conf/table/bahdanau_1.yaml", "conf/table/bahdanau_2.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for stamp in (".locked", ".ready"):
        (folder / ".venv" / stamp).touch()
    return folder


@pytest.fixture
def commands(checkout: Path) -> Callable[..., tuple[list[str], int]]:
    """Runs make with a Python that only notes its arguments, and fails where told to."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir()

    def run(*arguments: str, fails: str = "none", code: int = 1) -> tuple[list[str], int]:
        python.write_text(f'#!/bin/sh\necho "NOTED $*"\ncase "$*" in *{fails}*) exit {code};; esac\n', encoding="utf-8")
        python.chmod(0o755)
        made = subprocess.run(
            ["make", *arguments], cwd=checkout, capture_output=True, text=True, check=False, env=outside_make()
        )
        return [line.removeprefix("NOTED -m ") for line in made.stdout.splitlines() if "NOTED" in line], made.returncode

    return run


def test_all_tables_of_a_paper_are_trained_then_reported(commands):
    train, report = (
        "reproductions.train -m table=bahdanau_1,bahdanau_2 scale=small",
        "reproductions.report paper=bahdanau scale=small",
    )
    assert commands("repro-bahdanau") == ([train, report], 0)


def test_choices_reach_the_commands(commands):
    choices = ["SCALE=smoke", "TABLE=bahdanau_2", "ROW=r,q", "SEEDS=1,2", "FRESH=1", "ARGS=a=1 b=2"]
    assert commands("repro-bahdanau", *choices)[0] == [
        "reproductions.train -m table=bahdanau_2 scale=smoke experiment=bahdanau/r,bahdanau/q seed=1,2 fresh=true a=1 b=2",
        "reproductions.report paper=bahdanau scale=smoke",
    ]
    assert commands("results-bahdanau")[0] == [
        "reproductions.finished paper=bahdanau scale=small",
        "reproductions.report paper=bahdanau scale=small results=true",
    ]
    again = "reproductions.report paper=bahdanau scale=small rescore=true"
    assert commands("report-bahdanau", "ARGS=rescore=true")[0] == [again]
    assert commands("results-bahdanau", fails="finished")[0] == ["reproductions.finished paper=bahdanau scale=small"]
    dry = "reproductions.train -m table=bahdanau_2 scale=paper dry_run=true"
    assert commands("dry-run-bahdanau", "TABLE=bahdanau_2")[0] == [dry]


def test_a_failed_row_fails_after_the_report(commands):
    ran, code = commands("repro-bahdanau", fails="bahdanau_1")
    assert [line.split()[0] for line in ran] == ["reproductions.train", "reproductions.report"] and code != 0
    assert commands("repro-bahdanau", fails="report")[1] != 0
    ran, code = commands("repro-bahdanau", fails="bahdanau_1", code=2)  # a wrong argument: nothing else is run
    assert len(ran) == 1 and code != 0
    assert commands("dry-run-bahdanau", fails="bahdanau_1")[1] != 0


def test_an_unknown_paper_is_named_with_those_there_are(checkout: Path):
    with pytest.raises(subprocess.CalledProcessError) as error:
        make("-n", "repro-bahdanua", folder=checkout)
    assert 'no paper "bahdanua"; there is: bahdanau' in error.value.stderr


def test_the_preflight_names_all_that_is_missing_at_once(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(preflight, "DISK_CUDA", 2**60)
    monkeypatch.setattr(preflight, "DISK_CPU", 2**60)
    assert preflight.main("", "") == 1
    message = capsys.readouterr().err
    for what in ("Python 3.11 or 3.12 with venv", "git (", "make.", "a C compiler", "GiB of free disk space"):
        assert message.count(f"  - {what}") <= 1 and what in message
    assert message.count("Debian") >= 4 and message.count("macOS") >= 4


def test_the_preflight_passes_here_and_tells_why_a_python_will_not_do(tmp_path: Path):
    assert preflight.missing_python(sys.executable) == []
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 3 9\n")
    old.chmod(0o755)
    assert "python3 is 3.9)" in preflight.missing_python(str(old))[0]
    old.write_text("#!/bin/sh\necho \"No module named 'ensurepip'\" >&2\nexit 1\n")
    assert "No module named 'ensurepip'" in preflight.missing_python(str(old))[0]
    assert "No such file" in preflight.missing_python(str(tmp_path / "python3.12"))[0]


def test_the_preflight_is_valid_for_old_pythons():
    ast.parse((ROOT / "reproductions" / "preflight.py").read_text(encoding="utf-8"), feature_version=(3, 8))
