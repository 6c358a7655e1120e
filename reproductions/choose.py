"""python -m reproductions.choose --length 8192 --task longqa --phase infer --memory 24GiB [--layers 12 ...]

Which attention for a length and a task: of the kinds that can do it those that no other beats in time, memory and recall
together. Time and recall are those of the stored runs of the field guide (one layer, and recall of values by their keys), on the
machine that they ran on; memory is planned for the model that the options describe. Rules of thumb stand beside what was
measured. Exit code 2 where no measurement with provenance is there.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from pathlib import Path
from statistics import median

import yaml

from common.report.render.terminal import aligned
from common.report.samples import Samples, read_samples
from reproductions.report import ROOT

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
PHASES = {"infer": "forward", "train": "both"}
HALF, ADAM = 2, 16
"""Bytes of a number in generation, and for each weight in mixed-precision training with Adam: the weight and its gradient in
16 bits, a copy and two moments in 32 (Rajbhandari et al. 2019, section 3.1)."""
NEAR = 1.25
"""Times that differ by less are taken for the same."""


@dataclass(frozen=True)
class Shape:
    """Of the model and the request."""

    length: int
    batch: int
    layers: int
    heads: int
    head_dim: int
    groups: int
    window: int
    features: int
    vocabulary: int

    @property
    def width(self) -> int:
        return self.heads * self.head_dim

    @property
    def weights(self) -> int:
        """Of blocks with four projections and a feed-forward layer of four times the width, and of the embedding."""
        return 12 * self.layers * self.width**2 + self.vocabulary * self.width


@dataclass(frozen=True)
class Option:
    """row: of `layer_*`, what is measured. kept: numbers that one layer of one sequence keeps in generation. recall: a row of
    `recall_*`, if one was trained. far: whether one layer sees all pairs."""

    name: str
    row: str
    work: int
    kept: Callable[[Shape], int]
    recall: str | None
    far: bool
    reason: str


@dataclass(frozen=True)
class Task:
    """left: each token sees those before it alone. far: it hangs on tokens that are far apart."""

    left: bool
    far: bool


TASKS = {
    "lm": Task(left=True, far=False),
    "chat": Task(left=True, far=True),
    "longqa": Task(left=True, far=True),
    "classify": Task(left=False, far=False),
    "retrieve": Task(left=False, far=True),
}
LEFT = (
    Option("full", "full", 2, lambda s: 2 * s.length * s.width, "full", True, "exact, each pair of tokens"),
    Option("full, fused kernel", "fused", 2, lambda s: 2 * s.length * s.width, "full", True, "the same without the matrix"),
    Option(
        "grouped-query", "grouped", 2, lambda s: 2 * s.length * s.groups * s.head_dim, "grouped", True,
        "exact, a cache of fewer heads",
    ),
    Option(
        "multi-query", "multi_query", 2, lambda s: 2 * s.length * s.head_dim, "multi_query", True,
        "exact, the smallest cache that keeps each token",
    ),
    Option(
        "window", "window", 1, lambda s: 2 * min(s.length, s.window) * s.width, None, False,
        "exact within the window; what is further away passes from layer to layer",
    ),
    Option(
        "sums, elu + 1", "elu", 1, lambda s: s.width * (s.head_dim + 1), "linear", True, "a state of one size in place of a cache",
    ),
    Option(
        "sums, positive features", "features", 1, lambda s: s.heads * s.features * (s.head_dim + 1), None, True,
        "the same, approximating softmax",
    ),
    Option("selective state space", "selective", 1, lambda s: 2 * s.width * 16, "selective", True, "no attention, a small state"),
)  # fmt: skip
BOTH = (
    Option("full, fused kernel", "both_fused", 2, lambda s: 0, None, True, "exact, each pair of tokens"),
    Option("window", "both_window", 1, lambda s: 0, None, False, "exact within the window"),
    Option("BigBird", "both_bigbird", 1, lambda s: 0, None, False, "a window, global and random blocks"),
    Option("positive features", "both_features", 1, lambda s: 0, None, True, "approximates softmax over each pair"),
    Option("low rank", "both_linformer", 1, lambda s: 0, None, True, "all tokens through a few mixtures of them"),
)


@dataclass(frozen=True)
class Measured:
    """samples and accuracy by row of `layer_*` and `recall_*`; the width of the layers; the machine."""

    samples: Mapping[str, Mapping[str, Samples]]
    recall: Mapping[str, float]
    width: int
    origin: str


@dataclass(frozen=True)
class Chosen:
    """An option with its milliseconds a layer, bytes and percent of values recalled, None: not measured. beyond: the length
    is not among those measured."""

    option: Option
    time: float
    beyond: bool
    memory: int
    recall: float | None

    def beats(self, other: "Chosen", far: bool) -> bool:
        """No worse in anything that counts and better in something. What was not measured beats nothing and is not beaten."""
        mine, theirs = [-self.time, -self.memory], [-other.time, -other.memory]
        if far:
            mine.append(self.option.far)
            theirs.append(other.option.far)
            if other.recall is not None or self.recall is not None:
                if self.recall is None or other.recall is None:
                    return False
                mine.append(self.recall)
                theirs.append(other.recall)
        return all(a >= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs


def memory_of(text: str) -> int:
    """24GiB, 80GB. Raises ValueError for anything else."""
    if not (found := re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]i?B)", text)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a number and a unit, such as 24GiB")
    return int(float(found[1]) * UNITS[found[2]])


def measured(runs: Path) -> Measured:
    """What finished runs of the field guide say. Raises ValueError where one lacks provenance, or none is there."""
    samples: dict[str, Mapping[str, Samples]] = {}
    recall: dict[str, list[float]] = {}
    origins, width = set[str](), 0
    for kind in ("layer", "recall"):
        for file in sorted(runs.glob(f"{kind}_*-s*/result.json")):
            result = json.loads(file.read_text(encoding="utf-8"))
            if result.get("status") != "ok":
                continue
            if lacking := [
                name for name in ("git_commit", "source_hash", "hardware", "versions") if not result.get(name)
            ]:
                raise ValueError(
                    f"{file}: no {', '.join(lacking)}: expected a result that says what it was made of; run it again"
                )
            if result.get("git_dirty", True):
                raise ValueError(f"{file}: made of changed sources: expected a run of a commit; run it again from one")
            row = result["row"].removeprefix(f"{kind}_")
            if kind == "layer":
                samples[row] = read_samples(file.with_name("samples.json"))
                config = yaml.safe_load(file.with_name("config.yaml").read_text(encoding="utf-8"))
                width, hardware = config["parts"]["layers"]["d_model"], result["hardware"]
                origins.add(f"{hardware.get('gpu') or hardware['cpu']}, {hardware['cores']} cores")
            else:
                recall.setdefault(row, []).append(float(result["metrics"]["test/accuracy"]["value"]))
    if not samples:
        raise ValueError(
            f"{runs}: no measured layers: make repro-field-guide, or make stored-field-guide for the stored ones"
        )
    if len(origins) > 1:
        raise ValueError(
            f"{runs}: layers measured on {' and on '.join(sorted(origins))}: measure them again on one machine"
        )
    return Measured(samples, {row: sum(all_) / len(all_) for row, all_ in recall.items()}, width, origins.pop())


def at_length(samples: Samples, length: int, work: int) -> tuple[float, bool]:
    """The median and whether it lies beyond what was measured: between two lengths by a power of the length, beyond them by
    the power of its work."""
    points = sorted((int(point), median(taken)) for point, taken in samples.at.items())
    for (shorter, low), (longer, high) in pairwise(points):
        if shorter <= length <= longer:
            slope = log(high / low) / log(longer / shorter)
            return low * exp(slope * log(length / shorter)), False
    nearest, taken = points[0] if length < points[0][0] else points[-1]
    return taken * (length / nearest) ** work, length != nearest


def plan_memory(option: Option, shape: Shape, phase: str, held: float) -> int:
    """Bytes of weights and, to infer, of what generation keeps; to train, of Adam and of what a layer holds until its backward
    pass. held: bytes of one layer for each token and dimension of its width, as measured."""
    if phase == "infer":
        return HALF * (shape.weights + shape.layers * shape.batch * option.kept(shape))
    return ADAM * shape.weights + round(shape.layers * shape.batch * shape.length * shape.width * held)


def options(shape: Shape, task: Task, phase: str, found: Measured) -> Iterator[Chosen]:
    """Kinds that can do the task and were measured."""
    for option in LEFT if task.left else BOTH:
        if option.row not in found.samples:
            continue
        of = found.samples[option.row]
        if lacking := {f"{PHASES[phase]}_ms", "both_mb"} - of.keys():
            raise ValueError(
                f"layer_{option.row}: no {', '.join(sorted(lacking))}: measured otherwise; measure it again"
            )
        time, beyond = at_length(of[f"{PHASES[phase]}_ms"], shape.length, option.work)
        held, _ = at_length(of["both_mb"], shape.length, option.work)
        memory = plan_memory(option, shape, phase, held * 1e6 / (shape.length * found.width))
        yield Chosen(option, time, beyond, memory, found.recall.get(option.recall or ""))


def front(chosen: Sequence[Chosen], far: bool) -> list[Chosen]:
    """Those that no other beats."""
    return [one for one in chosen if not any(other.beats(one, far) for other in chosen)]


def rules(chosen: Sequence[Chosen], shape: Shape, task: Task, found: Measured, phase: str) -> Iterator[str]:
    """Each rule of thumb that speaks of this request, and whether what was measured agrees."""
    by_row = {one.option.row: one for one in chosen}
    softmax = by_row.get("fused") or by_row.get("both_fused")
    sums = by_row.get("elu") or by_row.get("both_features")
    if softmax and sums:
        ahead = softmax.time / sums.time
        says = "linear attention" if shape.length > 4096 else "softmax attention"
        faster = "neither" if 1 / NEAR < ahead < NEAR else "linear attention" if ahead > 1 else "softmax attention"
        yield _against(
            f"linear attention pays above 4,096 tokens: here {says}", says == faster,
            f"softmax {softmax.time:.3g} ms, linear {sums.time:.3g} ms",
        )  # fmt: skip
    window = by_row.get("window") or by_row.get("both_window")
    if softmax and window and not task.far:
        says = shape.length > 1024
        yield _against(
            f"a window is {'' if says else 'not '}worth it {'above' if says else 'up to'} 1,024 tokens",
            says == (softmax.time > NEAR * window.time), f"full {softmax.time:.3g} ms, window {window.time:.3g} ms",
        )  # fmt: skip
    if task.far and task.left:
        exact = found.recall.get("full")
        for name, row in (
            ("linear attention", "linear"),
            ("a state space", "selective"),
            ("one head of keys", "multi_query"),
        ):
            if exact is not None and row in found.recall:
                lost = exact - found.recall[row]
                rule = f"{name} recalls {'as well as' if row == 'multi_query' else 'less than'} softmax attention"
                yield _against(
                    rule, (lost < 5) == (row == "multi_query"), f"{exact:.1f} % and {found.recall[row]:.1f} %"
                )
    if phase == "train" and softmax and "full" in by_row:
        times = by_row["full"].memory / softmax.memory
        yield _against("a fused kernel saves memory in training", times > 1, f"{times:.2f} times as much without")


def _against(rule: str, agrees: bool, numbers: str) -> str:
    return f"{'agrees' if agrees else 'DISAGREES'}: {rule} ({numbers})"


def report(shape: Shape, task: Task, phase: str, memory: int, found: Measured) -> str:
    chosen = list(options(shape, task, phase, found))
    fitting = [one for one in chosen if one.memory <= memory]
    best = front(fitting, task.far)
    lines = []
    by_time = sorted(chosen, key=lambda one: one.time)
    for one in by_time:
        mark = "too large" if one.memory > memory else "front" if one in best else ""
        recall = "-" if one.recall is None else f"{one.recall:.1f}"
        time = f"{'~' if one.beyond else ''}{one.time:.3g}"
        lines.append((one.option.name, time, f"{one.memory / 2**30:.2f}", recall, mark))
    head = ("kind", "ms a layer", "GiB", "recall, %", "")
    out = [
        aligned(head, lines),
        *(f"{one.option.name}: {one.option.reason}" for one in by_time if one in best),
        f"Times: one layer of width {found.width}, one sequence, {found.origin}; ~: by its work, beyond the lengths measured.",
        f"Memory: {shape.weights / 1e6:.0f} M weights, {shape.batch} x {shape.length:,} tokens.",
        *rules(chosen, shape, task, found, phase),
    ]
    if task.far and any(not one.option.far for one in best):
        out.append("The task needs what is far away, which a sparse kind sees through several layers alone.")
    if not fitting:
        least = min(chosen, key=lambda one: one.memory)
        out.append(
            f"Nothing fits {memory / 2**30:.1f} GiB: {least.option.name} needs least, {least.memory / 2**30:.2f}."
        )
    return "\n".join(out)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m reproductions.choose", description=str(__doc__).split("\n\n")[1])
    parser.add_argument("--length", type=int, required=True, help="tokens of a sequence")
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--phase", choices=PHASES, required=True)
    parser.add_argument("--memory", type=memory_of, required=True, help="of the device, such as 24GiB")
    sizes = {"batch": 1, "layers": 12, "heads": 12, "head_dim": 64, "groups": 4, "window": 256, "features": 256}
    for name, size in (sizes | {"vocabulary": 32000}).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size)
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "runs/field_guide/small", help="folder of the field guide's runs"
    )
    given = vars(parser.parse_args(argv))
    task, phase, memory, runs = (given.pop(name) for name in ("task", "phase", "memory", "runs"))
    try:
        if small := [f"--{name.replace('_', '-')} {size}" for name, size in given.items() if size < 1]:
            raise ValueError(f"{', '.join(small)}: expected 1 or more")
        print(report(Shape(**given), TASKS[task], phase, memory, measured(runs)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
