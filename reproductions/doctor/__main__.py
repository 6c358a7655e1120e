"""python -m reproductions.doctor oom|blur|position|causal|dims RUN_OR_CONFIG

RUN_OR_CONFIG: the folder of a finished run, or overrides that compose a row, such as experiment=luong/global_dot scale=smoke.

oom: memory of a training update and what each remedy saves of it. blur: heads that read evenly or alike, of a run. position:
whether order counts, and longer texts. causal: parts that see what follows. dims: shapes up to where they don't fit.
Exit code: 0; 1 where something is wrong, which the last lines say; 2 for a wrong argument.
"""

import sys
from collections.abc import Callable, Sequence

from reproductions.doctor.blur import blur
from reproductions.doctor.causal import causal
from reproductions.doctor.dims import dims
from reproductions.doctor.oom import oom
from reproductions.doctor.position import position
from reproductions.doctor.subject import Report, Subject, subject_of

LOOKS: dict[str, Callable[[Subject], Report]] = {
    "oom": oom,
    "blur": blur,
    "position": position,
    "causal": causal,
    "dims": dims,
}


def main(argv: Sequence[str]) -> int:
    try:
        if len(argv) < 2 or argv[0] not in LOOKS:
            raise ValueError(f"got {' '.join(argv)!r}, expected one of {', '.join(LOOKS)} and a run or overrides")
        report = LOOKS[argv[0]](subject_of(argv[1:]))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in report.lines:
        print(line)
    for fault in report.faults:
        print(f"WRONG: {fault}")
    print("nothing wrong found" if not report.faults else f"{len(report.faults)} found")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
