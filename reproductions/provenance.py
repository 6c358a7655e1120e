"""What a result depends on, as hashes: the resolved configuration and our own source code.

Needs neither torch nor hydra, so that a report can tell whether a stored row is still that of the present code.
"""

import ast
import hashlib
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("common", "data", "reproductions")
ENTRY = ("reproductions.job", "reproductions.evaluate")
NOT_SCIENCE = ("logger", "paths", "fresh", "dry_run", "table", "hydra", "length", "lengths", "hidden", "budgets")
NOT_SCIENCE_TRAINER = ("accelerator", "devices", "num_nodes", "strategy", "progress")
VERSIONS = ("torch", "pytorch-lightning", "hydra-core", "datasets", "sacrebleu", "sacremoses", "numpy")


def config_hash(config: Mapping[str, Any]) -> str:
    """sha256 of a resolved configuration without what cannot change a result: logger, paths, devices, cache."""
    kept = {key: value for key, value in config.items() if key not in NOT_SCIENCE}
    for section, keys in (("trainer", NOT_SCIENCE_TRAINER), ("data", ("cache",))):
        kept[section] = {k: v for k, v in config.get(section, {}).items() if k not in keys}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def source_hash(config: Mapping[str, Any]) -> str:
    """sha256 of the code that a configuration runs: the modules that its `_target_`s and the job itself import.

    Comments, docstrings and layout do not count. Loggers and everything that only reads results do not either.
    """
    targets = {str(target).rpartition(".")[0] for target in _values(config, "_target_")}
    modules = _reachable(frozenset(t for t in targets if t.split(".")[0] in PACKAGES) | frozenset(ENTRY))
    digest = hashlib.sha256()
    for name in sorted(modules):
        digest.update(f"{name}\n{_code(_file(name))}\n".encode())
    return digest.hexdigest()


def _values(node: Any, key: str) -> Iterator[Any]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            if name == key:
                yield value
            yield from _values(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from _values(value, key)


@lru_cache
def _reachable(roots: frozenset[str]) -> frozenset[str]:
    """Our modules that the roots import, directly or not."""
    seen: set[str] = set()
    todo = list(roots)
    while todo:
        name = todo.pop()
        path = _file(name)
        if name in seen or path is None or name.startswith("reproductions.log_"):
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
    return frozenset(seen)


def _file(module: str) -> Path | None:
    if module.split(".")[0] not in PACKAGES:
        return None
    path = ROOT.joinpath(*module.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@lru_cache
def _code(path: Path) -> str:
    """The syntax tree as text, docstrings removed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def git_state() -> dict[str, Any]:
    """git_commit and git_dirty of the checkout; None outside one."""

    def git(*arguments: str) -> str | None:
        run = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
        return run.stdout.strip() if run.returncode == 0 else None

    status = git("status", "--porcelain", "--untracked-files=no")
    return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": None if status is None else bool(status)}


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}}


def hardware() -> dict[str, Any]:
    """Processor, cores, and accelerator if torch sees one."""
    import os

    import torch

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"cpu": cpu, "cores": os.cpu_count(), "gpu": gpu}
