"""Starts pytest by forking a process that has imported what takes longer to import than most tests run.

Stands alone: it is started by its file's name, next to a tree that may be of anything, and imports nothing of it. Its
arguments are names of modules to import beforehand. A line of standard input is a JSON object: `tree`, `arguments` of pytest
and `output`, the file for what it prints. A line of standard output is how it ended: its exit code, or minus the signal.
"""

import gc
import importlib
import json
import os
import sys
from pathlib import Path

import pytest


def test(tree: str, arguments: list[str], output: str) -> int:
    """In this process, which is a copy."""
    os.chdir(tree)
    sys.path.insert(0, tree)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream, at in ((nothing, 0), (file, 1), (file, 2)):
        os.dup2(stream, at)
    return int(pytest.main(arguments))


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # collected or not, what is shared is not copied for it
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 3  # pytest's own number for an error inside it
            try:
                code = test(**json.loads(line))
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))  # for the plugin beside it
    main()
