"""Which code made something, as a hash: another version of it is noticed, another layout or Python version is not."""

import ast
import hashlib
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def code_hash(modules: Collection[str], without: str | None = None) -> str:
    """sha256 over these modules and all modules of the project that they import, directly or not.

    Comments, docstrings and layout do not count. `without`: modules whose names start so are left out, and what only
    they import.
    """
    digest = hashlib.sha256()
    for name in sorted(closure(frozenset(modules), without)):
        digest.update(f"{name} {statements(module_file(name))}\n".encode())
    return digest.hexdigest()


@cache
def closure(modules: frozenset[str], without: str | None = None) -> frozenset[str]:
    """The project's modules among these and what they import, packages that hold them included."""
    found: set[str] = set()
    todo = list(modules)
    while todo:
        name = todo.pop()
        file = module_file(name)
        if file is None or name in found or (without and name.startswith(without)):
            continue
        found.add(name)
        todo += [name.rpartition(".")[0], *imports(file)]
    return frozenset(found)


def module_file(name: str) -> Path | None:
    """The file of a module under ROOT, None for anything else."""
    if not name:
        return None
    path = ROOT.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def imports(file: Path) -> tuple[str, ...]:
    """Names that may be modules: of `from a import b` both a and a.b, of `import_module(f"a.{name}")` all in a."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
            package = str(node.values[0].value)
            if package.endswith(".") and (start := module_file(package[:-1])) and start.name == "__init__.py":
                yield from (package + module.stem for module in sorted(start.parent.glob("*.py")))


@cache
def statements(file: Path) -> str:
    """A file's code as text."""
    return repr(plain(ast.parse(file.read_text(encoding="utf-8"))))


def remember(file: Path) -> None:
    """Read a module once, for every hash to come and every process that is copied from this one."""
    statements(file)
    imports(file)


def plain(node: Any) -> Any:
    """A syntax tree as tuples, without texts that stand alone (docstrings).

    `ast.dump` will not do: each release of Python has some more fields, which are empty for code that earlier ones read.
    """
    if isinstance(node, list):
        return tuple(plain(item) for item in node if not _text(item))
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, value) for name, value in ast.iter_fields(node) if value is not None and value != []]
    return type(node).__name__, *((name, plain(value)) for name, value in fields)


def _text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
