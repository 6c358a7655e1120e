"""python -m reproductions.flash_attention.export FILE...: results of `python -m common.bench attention` for the report.

Writes measured/<device>-<date>.json beside this file, which the report shows next to the published figures.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common.bench.record import Record, Row, read

FOLDER = Path(__file__).parent / "measured"
PUBLISHED_ROWS = {"plain": "pytorch", "flash_attn": "flashattention_2", "torch:cudnn": "cudnn"}
"""Contestant -> the published row that is the same method. Ours are rows of their own."""
TOKENS, HIDDEN = 16384, 2048  # of the published figures: a batch's, and heads times head_dim


def main(arguments: Sequence[str]) -> int:
    """0, or 2 if a file is not a finished record of a bench."""
    for name in arguments:
        try:
            record = read(Path(name))
            if not record.complete:
                raise ValueError("the bench was stopped before its last row: run it to its end")
        except (OSError, ValueError) as error:
            print(error if name in str(error) else f"{name}: {error}", file=sys.stderr)
            return 2
        exported = export(record)
        FOLDER.mkdir(exist_ok=True)
        slug = re.sub(r"[^a-z0-9]+", "-", f"{exported['device']} {record.date[:16]}".lower()).strip("-")
        (FOLDER / f"{slug}.json").write_text(json.dumps(exported, indent=1) + "\n", encoding="utf-8")
        print(FOLDER / f"{slug}.json")
    return 0


def export(record: Record) -> dict[str, Any]:
    """The record as `common.report.elsewhere` reads it: a speed in TFLOP/s for each repeat, or why there is none."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for row in record.rows:
        for quantity, unit, values in _quantities(row):
            label = f"{row.backend}, {row.dtype}"
            found = rows.setdefault(
                (label, quantity),
                {"label": label, "row": PUBLISHED_ROWS.get(row.backend, label), "quantity": quantity, "unit": unit,
                 "at": {}, "refused": {}},
            )  # fmt: skip
            if values:
                found["at"][str(row.length)] = values
            else:
                found["refused"][str(row.length)] = f"{row.status}: {row.reason}"
    return {
        "device": record.machine["device"], "versions": dict(record.versions), "date": record.date,
        "machine": dict(record.machine), "clocks": list({tuple(clock.items()): dict(clock) for clock in record.clocks}.values()), "commit": record.commit,
        "source": record.source, "command": " ".join(word for word in record.command.split() if not word.startswith("out=")), "rows": list(rows.values()),
    }  # fmt: skip


def _quantities(row: Row) -> Iterator[tuple[str, str, list[float]]]:
    """Named as published.yaml has them where pass, head_dim, mask and shape are those of its figures."""
    words = [row.passes, f"d{row.head_dim}"]
    words += [] if row.mask == "full" else [re.sub(r"\W+", "_", row.mask)]
    words += [f"dropout{row.dropout:g}"] if row.dropout else []
    if (row.batch * row.length, row.heads * row.head_dim) != (TOKENS, HIDDEN) or row.kv_heads != row.heads:
        words += [f"b{row.batch}", f"h{row.heads}", f"kv{row.kv_heads}"]
    name, flops = "_".join(words), row.flops_kept if row.flops_paper is None else row.flops_paper
    yield f"tflops_{name}", "TFLOP/s", [flops / seconds / 1e12 for seconds in row.samples]
    if row.peak_bytes is not None:
        yield f"memory_mb_{name}", "MB", [row.peak_bytes / 1e6]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
