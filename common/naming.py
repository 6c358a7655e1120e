"""Names of the folders that runs lie in: written by what runs, read by the report."""

import hashlib
import re

LONGEST_NAME = 120


def folder_name(row: str, seed: int) -> str:
    """The folder of a run: its row and seed as a file name; a long row (of many overrides) is cut and told by a hash."""
    name = re.sub(r"[^\w.+=-]", "_", row)
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}~{hashlib.sha256(row.encode()).hexdigest()[:8]}"
    return f"{name}-s{seed}"
