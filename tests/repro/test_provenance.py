"""Hashes: what must change them does, what must not does not."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reproductions import provenance
from reproductions.compose import Job

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
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    provenance._reachable.cache_clear()
    provenance._code.cache_clear()


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
    config = {"data": {"_target_": "data.source.Source"}}
    before = provenance.source_hash(config)
    (tree / name).write_text(text)
    forget()
    assert (provenance.source_hash(config) != before) == changes


def test_the_real_sources_of_a_row(tiny: Maker) -> None:
    provenance.source_hash(tiny().config)
    targets = frozenset({"reproductions.bahdanau.model", "data.translation", "common.optim", *provenance.ENTRY})
    modules = provenance._reachable(targets)
    assert {"common.nn.attentive", "common.decode.beam", "data.bucketing", "common.lit.seq2seq"} <= modules
    assert not [name for name in modules if name.startswith(("common.report", "reproductions.log_"))]
