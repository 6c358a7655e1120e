"""Who may import what, by reading the source: parts stay usable on their own, and small files stay small."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("common", "data", "reproductions", "tests")
MAX_LINES = 400

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "common.attention": (),
    "common.metrics": (),
    "common.decode": (),
    "common.naming": (),
    "common.report": ("common.naming",),
    "common.optim": (),
    "common.nn": ("common.attention",),
    "common.adapters": ("common.attention", "common.nn"),
    "common.bench": ("common.attention",),
    "common.lit": ("common.nn", "common.decode", "common.metrics", "common.optim", "data.batch", "data.token_batch"),
    "common.callbacks": (
        "common.nn",
        "common.decode",
        "common.metrics",
        "common.optim",
        "data.batch",
        "data.token_batch",
    ),
    "data": (),
    "reproductions": ("common", "data"),
    "tests": ("common", "data", "reproductions"),
}
"""Each part, and which of our modules it may import besides itself."""

COMMANDS = ("tasks", "peers", "doctor")
"""Folders of reproductions that are no paper's."""

GUIDE = "field_guide"
"""Speaks of what all papers claim, and so may read their models."""

TRAINING = ("reproductions/train.py", "reproductions/job.py", "reproductions/log_wandb.py")

ONLY_IN: dict[str, tuple[str, ...]] = {
    "hydra": ("reproductions/*.py", "reproductions/doctor/*.py", "tests/**"),
    "pytorch_lightning": ("common/lit/**", "common/callbacks/**", "data/**", *TRAINING, "tests/**"),
    "lightning": (),
    "triton": ("common/attention/kernels/**", "common/attention/backends/triton.py", "tests/**"),
}
"""Libraries that only these files may import."""

LAZY: dict[str, tuple[str, ...]] = {
    "triton": ("common/attention/kernels/**", "tests/**"),
    "common.attention.kernels": ("common/attention/kernels/**", "tests/**"),
}
"""Imported at the top of a file only in these; elsewhere inside a function, so that it is loaded when it is used."""

NEEDS_ONLY: dict[str, tuple[str, ...]] = {
    "common.attention": ("torch", "triton"),
    "common.bench": ("torch", "triton"),
    "reproductions.preflight": (),
}
"""Parts that must run where nothing else is installed."""

NEVER_LOADS: dict[str, tuple[str, ...]] = {
    "common.report": ("torch", "torchmetrics", "pytorch_lightning", "hydra"),
    "reproductions.report": ("torch", "torchmetrics", "pytorch_lightning"),
    "reproductions.peers": ("torchmetrics", "pytorch_lightning", "hydra", "omegaconf", "pydantic"),
}
"""Parts that must not load a library: not themselves, even in a function, nor by importing another module of ours."""


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    name: str
    top_level: bool


def within(name: str, parents: tuple[str, ...]) -> bool:
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


def matches(file: Path, globs: tuple[str, ...]) -> bool:
    """`dir/**` is everything below a folder; any other pattern is of one folder alone."""
    return any(
        str(file).startswith(glob[:-2])
        if glob.endswith("/**")
        else file.match(glob) and file.parts[:-1] == Path(glob).parts[:-1]
        for glob in globs
    )


def module_of(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Tree:
    """All modules below a root, with what each imports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = sorted(f.relative_to(root) for top in OURS for f in (root / top).rglob("*.py"))
        self.modules = {module_of(file): file for file in self.files}
        self.imports = {module: list(self._read(file)) for module, file in self.modules.items()}

    def _read(self, file: Path) -> Iterator[Import]:
        tree = ast.parse((self.root / file).read_text(encoding="utf-8"), str(file))
        lazy = {
            id(inner)
            for outer in ast.walk(tree)
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for inner in ast.walk(outer)
        }
        package = file.parts[:-1]
        for node in ast.walk(tree):
            for name in self._names(node, package):
                yield Import(file, getattr(node, "lineno", 0), name, id(node) not in lazy)

    def _names(self, node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
        """`from a import b` is an import of a.b where that is a module, else of a."""
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in self.modules else base
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value

    def loads(self, module: str) -> dict[str, str]:
        """Everything that importing a module may load, with the module of ours that asks for it."""
        found: dict[str, str] = {}
        todo = [module]
        while todo:
            asking = todo.pop()
            parents = [asking.rsplit(".", n)[0] for n in range(1, asking.count(".") + 1)]
            asked = [i.name for i in self.imports.get(asking, []) if i.top_level or asking == module]
            for name in [*parents, *asked]:
                if name not in found:
                    found[name] = asking
                    todo.append(name)
        return found


def violations(root: Path) -> list[str]:
    tree = Tree(root)
    found = [
        f"{file}: {n} lines, at most {MAX_LINES}" for file in tree.files if (n := line_count(root / file)) > MAX_LINES
    ]
    for module, imports in tree.imports.items():
        file = tree.modules[module]
        part = max((p for p in MAY_IMPORT if within(module, (p,))), key=len, default=None)
        if part is None and module not in ("common",):
            found.append(f"{file}: {module} is in no layer of MAY_IMPORT")
        for i in imports:
            reason = refused(module, part, i)
            if reason:
                found.append(f"{file}:{i.line}: {module} imports {i.name}: {reason}")
    for module in tree.modules:
        for part, libraries in NEVER_LOADS.items():
            if within(module, (part,)):
                loads = tree.loads(module)
                found += [
                    f"{tree.modules[module]}: {module} loads {name} through {by}: it must run without {name.split('.')[0]}"
                    for name, by in loads.items()
                    if within(name, libraries)
                ]
    return found


def refused(module: str, part: str | None, i: Import) -> str | None:
    """Why this import is against the rules, if it is."""
    top = i.name.split(".")[0]
    if top in OURS:
        if not within(i.name, (part or module, *MAY_IMPORT.get(part or "", ()))):
            return f"{part or module} may import {', '.join(MAY_IMPORT.get(part or '', ())) or 'nothing of ours'}"
        paper, other = (name.split(".")[1:2] for name in (module, i.name))
        of_paper = module.count(".") > 1 and paper[0] not in COMMANDS
        reads = paper == [GUIDE] and other and other[0] not in COMMANDS
        if top == part == "reproductions" and of_paper and other and other != paper and not reads:
            return "a paper imports nothing of another paper, nor of the commands"
    if top in ONLY_IN and not matches(i.file, ONLY_IN[top]):
        return f"only {', '.join(ONLY_IN[top]) or 'nobody'} may"
    for name, allowed in LAZY.items():
        if i.top_level and within(i.name, (name,)) and not matches(i.file, allowed):
            return "only inside a function"
    for needing, libraries in NEEDS_ONLY.items():
        if within(module, (needing,)) and top not in (*OURS, *libraries, *sys.stdlib_module_names):
            return f"{needing} needs {', '.join(libraries) or 'the standard library'} alone"
    return None


def line_count(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def test_this_project_keeps_to_its_layers():
    assert len(Tree(ROOT).files) > 40
    assert violations(ROOT) == []


PLANTED = {
    "attention imports nn": ("common/attention/a.py", "import common.nn.recurrent", "nothing of ours"),
    "decode imports data": ("common/decode/a.py", "from data.vocab import EOS", "nothing of ours"),
    "nn imports decode": ("common/nn/a.py", "from common import decode", "may import common.attention"),
    "lit imports the data module": ("common/lit/a.py", "from data import translation", "data.batch"),
    "data imports common": ("data/a.py", "from common.nn import recurrent", "nothing of ours"),
    "inside a function": ("common/metrics/a.py", "def f():\n    import data.vocab", "nothing of ours"),
    "relative": ("common/metrics/a.py", "from ..nn import recurrent", "nothing of ours"),
    "by name": ("common/metrics/a.py", "import_module('common.nn.recurrent')", "nothing of ours"),
    "one paper from another": ("reproductions/luong/a.py", "from reproductions.bahdanau import model", "another paper"),
    "a paper from a command": ("reproductions/luong/a.py", "from reproductions.train import main", "commands"),
    "a command by its name": ("reproductions/luong/a.py", "from reproductions import report", "commands"),
    "a package without a layer": ("common/extra/a.py", "", "in no layer"),
    "tests in the product": ("common/nn/a.py", "from tests.common import toy", "may import common.attention"),
    "hydra in a paper": ("reproductions/luong/a.py", "import hydra", "only reproductions/*.py"),
    "hydra in common": ("common/lit/a.py", "from hydra.utils import instantiate", "only reproductions/*.py"),
    "lightning in nn": ("common/nn/a.py", "import pytorch_lightning as pl", "only common/lit/**"),
    "lightning in a command": ("reproductions/bench.py", "import pytorch_lightning", "only common/lit/**"),
    "the other lightning": ("common/lit/a.py", "import lightning", "nobody may"),
    "triton in nn": ("common/nn/a.py", "def f():\n    import triton", "only common/attention/kernels"),
    "triton at the top": ("common/attention/backends/triton.py", "import triton.language as tl", "inside a function"),
    "kernels at the top": ("common/attention/a.py", "from common.attention.kernels import flash", "inside a function"),
    "numpy in the core": ("common/attention/a.py", "import numpy", "torch, triton alone"),
    "yaml before the set-up": ("reproductions/preflight.py", "import yaml", "standard library alone"),
    "torch in the report": ("common/report/a.py", "import torch", "must run without torch"),
    "torch in a function": ("common/report/a.py", "def f():\n    import torch", "must run without torch"),
    "torch behind the report": ("reproductions/report.py", "from data.vocab import EOS", "loads torch through data"),
    "a long file": ("data/a.py", "\n" * 401, "401 lines"),
}


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """A tree that keeps all rules and uses every freedom."""
    files = {
        "common/__init__.py": "",
        "common/attention/scores.py": "import math\nimport torch\n",
        "common/attention/kernels/flash.py": "import triton\nfrom common.attention import scores\n",
        "common/attention/backends/triton.py": "def run():\n    import triton\n    from common.attention.kernels import flash\n",
        "common/nn/recurrent.py": "from common.attention import scores\n",
        "common/lit/seq2seq.py": "import pytorch_lightning\nfrom data import batch\nfrom common.nn import recurrent\n",
        "common/report/join.py": "import numpy\nfrom . import render\n",
        "common/report/render.py": "",
        "data/__init__.py": "import torch\n",
        "data/batch.py": "from data.vocab import EOS\n",
        "data/vocab.py": "EOS = 2\n",
        "reproductions/provenance.py": "def versions():\n    import torch\n",
        "data/translation.py": "import pytorch_lightning\n" + "\n" * 399,
        "reproductions/train.py": "import hydra, pytorch_lightning, data.translation, common.lit.seq2seq\n",
        "reproductions/report.py": "import hydra\nfrom common.report import join\nfrom reproductions import provenance\n",
        "reproductions/preflight.py": "import shutil\n",
        "reproductions/bahdanau/model.py": "from common.nn import recurrent\nfrom reproductions.bahdanau import measure\n",
        "reproductions/bahdanau/measure.py": "import torch\n",
        "tests/test_model.py": "import hydra, triton\nfrom reproductions.bahdanau import model\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_right_tree_passes(toy: Path):
    assert violations(toy) == []


@pytest.mark.parametrize(("name", "text", "reason"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_violation_is_found(toy: Path, name: str, text: str, reason: str):
    (toy / name).parent.mkdir(parents=True, exist_ok=True)
    (toy / name).write_text(text, encoding="utf-8")
    [found] = violations(toy)
    assert found.startswith(name) and reason in found
