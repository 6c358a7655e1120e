"""python -m common.bench attention [key=value ...]"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from common.bench import attention
from common.bench.settings import describe, parse


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 if a row failed, or 2 for settings that mean nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m common.bench",
        description="Times and memory of attention, written to one JSON file.",
        epilog=describe("cuda" if torch.cuda.is_available() else "cpu"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bench", choices=["attention"])
    parser.add_argument("settings", nargs="*", metavar="key=value")
    given = parser.parse_args(arguments)
    try:
        settings = parse(given.settings)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    out = Path(settings.out or f"runs/bench/attention-{settings.device.replace(':', '')}-{now}.json")
    command = " ".join([parser.prog, given.bench, *given.settings])
    record = attention.run(settings, out, command=command, tell=partial(print, flush=True))
    print(out)
    return int(any(row.status == "failed" for row in record.rows))


if __name__ == "__main__":
    sys.exit(main())
