"""What a process that rows are copied from has read: imported last there, it knows all of its own files."""

import hashlib
import sys
from pathlib import Path

from data import code

ROOT = Path(__file__).resolve().parents[1]


def digests(files: list[Path]) -> dict[Path, str]:
    """Of what each holds; empty for one that is gone."""
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "" for file in files}


def own_files() -> list[Path]:
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = [Path(name) for name in named if name]
    return [file for file in files if file.is_relative_to(ROOT) and "site-packages" not in file.parts]


READ = digests(own_files())
for module in READ:
    code.remember(module)


def changed() -> bool:
    """Whether a file is no longer what was imported: a row would run other code than its source hash says."""
    return digests(list(READ)) != READ
