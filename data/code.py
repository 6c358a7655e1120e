"""Which code made a prepared data set, so that another version of it prepares anew and never reads the old rows."""

import ast
import hashlib
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def module_file(name: str) -> Path | None:
    """The file of a module under ROOT, None for anything else."""
    path = ROOT.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def statements(text: str) -> ast.Module:
    """A file's code without docstrings; comments and layout are gone with the parsing."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            kept = [line for line in body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


@lru_cache
def code_hash(*modules: str) -> str:
    """sha256 over these modules and all modules of the project that they import, directly or not."""
    found: dict[str, str] = {}
    todo = list(modules)
    while todo:
        name = todo.pop()
        file = module_file(name)
        if file is None or name in found:
            continue
        tree = statements(file.read_text(encoding="utf-8"))
        found[name] = ast.unparse(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()
