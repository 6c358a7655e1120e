"""Hashes: what must change them does, what must not does not."""

import copy
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from data import code
from reproductions import provenance
from reproductions.compose import Job, job

Maker = Callable[..., Job]


@pytest.mark.parametrize(
    ("override", "changes"),
    [
        ("model.alignment=32", True),
        ("optim.optimizer.lr=0.001", True),
        ("trainer.precision=bf16-mixed", True),
        ("trainer.threads=2", True),
        ("seed=2", True),
        ("logger.mode=offline", False),
        ("trainer.devices=2", False),
        ("fresh=true", False),
    ],
)
def test_config_hash(tiny: Maker, tmp_path: Path, override: str, changes: bool) -> None:
    base, other = tiny(runs=tmp_path).config, tiny(override, runs=tmp_path / "elsewhere").config
    other = copy.deepcopy(other) | {key: base[key] for key in ("row", "label")}
    assert (provenance.config_hash(base) != provenance.config_hash(other)) == changes


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of four modules: the job imports used, used imports deep; beside is imported by nobody."""
    files = {
        "reproductions/job.py": "import common.used\n",
        "reproductions/evaluate.py": "",
        "common/used.py": "from common import deep\nX = 1\n",
        "common/deep.py": '"""Doc."""\n\ndef f():\n    return 1\n',
        "common/beside.py": "Y = 1\n",
        "data/source.py": "Z = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    code.closure.cache_clear()
    code.statements.cache_clear()
    code.imports.cache_clear()


@pytest.mark.parametrize(
    ("name", "text", "changes"),
    [
        ("common/used.py", "from common import deep\nX = 2\n", True),
        ("common/deep.py", '"""Doc."""\n\ndef f():\n    return 2\n', True),
        ("common/deep.py", '"""Another."""\n\n\ndef f():  # why\n    """What."""\n    return 1\n', False),
        ("common/beside.py", "Y = 2\n", False),
        ("data/source.py", "Z = 2\n", True),
    ],
)
def test_source_hash(tree: Path, name: str, text: str, changes: bool) -> None:
    config = {"data": {"_target_": "data.source.Source"}, "trainer": {}}
    before = provenance.source_hash(config)
    (tree / name).write_text(text)
    forget()
    assert (provenance.source_hash(config) != before) == changes


@pytest.mark.parametrize(
    ("row", "own", "of_others"),
    [
        (
            "bahdanau/rnnsearch_50",
            {"common.nn.attentive", "common.decode.beam", "common.lit.seq2seq"},
            "common.nn.sparse",
        ),
        (
            "longformer_bigbird/lm_window",
            {"common.nn.sparse.windowed", "common.attention.backends.chunked"},
            "common.decode",
        ),
    ],
)
def test_the_real_sources_of_a_row(row: str, own: set[str], of_others: str) -> None:
    """Those of its model, its task and of backends that are chosen by name; none of another task, of reports or loggers."""
    config = job((f"experiment={row}",), None).config
    targets = {str(target).rpartition(".")[0] for target in provenance._values(config, "_target_")}
    modules = code.closure(frozenset(targets | set(provenance.ENTRY)), provenance.LOGGERS)
    assert own <= modules
    assert not [name for name in modules if name.startswith(("common.report", "reproductions.log_", of_others))]


def test_a_module_that_git_does_not_know_makes_the_checkout_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.git_state() == {"git_commit": None, "git_dirty": None}
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "m"]):
        subprocess.run([*git, *arguments], check=True)
    (tmp_path / "notes.txt").write_text("")
    assert provenance.git_state()["git_dirty"] is False
    (tmp_path / "extra.py").write_text("")
    assert provenance.git_state()["git_dirty"] is True


def test_a_job_on_the_cpu_names_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "H200")
    assert provenance.hardware("cpu")["gpu"] is None
    assert provenance.hardware("gpu")["gpu"] == "H200"
