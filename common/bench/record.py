"""The file that a bench writes: one JSON object with its rows, what they were measured on, and the unit of each number."""

import json
import os
import statistics
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from common.bench.flops import Pass

SCHEMA = 1
UNITS = {
    "batch": "sequences",
    "heads": "heads",
    "kv_heads": "heads",
    "length": "tokens",
    "head_dim": "numbers",
    "dropout": "share of weights",
    "density": "pairs kept / all pairs",
    "block_density": "blocks of 128 x 128 with anything kept / all blocks",
    "input_sets": "sets",
    "calls": "calls in one sample",
    "samples": "s a call",
    "seconds": "s a call, median of samples",
    "flops_paper": "FLOP: 4 B H L^2 D forward, half if causal, x 2.5 backward, x 3.5 both",
    "flops_kept": "FLOP: the same over the pairs kept",
    "tflops_paper": "TFLOP/s",
    "tflops_kept": "TFLOP/s",
    "product_tflops": "TFLOP/s of a square matrix product in the same turns",
    "share_of_product": "tflops_paper (or else tflops_kept) / product_tflops",
    "peak_bytes": "bytes beyond the inputs; on a CPU without scratch inside an operation; none for backward alone",
    "over_block_density": "seconds / (block_density x seconds of the full mask)",
    "ratios": "seconds of the other / seconds of this one, by turns: median, low and high of an interval, its coverage",
}
Status = Literal["measured", "refused", "out of memory", "skipped", "failed"]


@dataclass(frozen=True)
class Ratio:
    median: float
    low: float
    high: float
    coverage: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One pass of one contestant at one shape and mask; not measured: why. UNITS has the unit of each number."""

    backend: str
    passes: Pass
    mask: str
    dropout: float
    dtype: str
    batch: int
    heads: int
    kv_heads: int
    length: int
    head_dim: int
    density: float
    block_density: float
    flops_paper: float | None
    flops_kept: float
    status: Status
    reason: str | None = None
    input_sets: int | None = None
    calls: int | None = None
    samples: tuple[float, ...] = ()
    seconds: float | None = None
    tflops_paper: float | None = None
    tflops_kept: float | None = None
    product_tflops: float | None = None
    share_of_product: float | None = None
    peak_bytes: int | None = None
    over_block_density: float | None = None
    ratios: Mapping[str, Ratio] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a measured row without its numbers, or one that was not measured without its reason."""
        if self.status == "measured":
            numbers = (self.seconds, self.calls, self.tflops_kept, self.product_tflops, self.share_of_product)
            if None in numbers or not self.samples or min(self.samples) <= 0:
                raise ValueError(f"a measured row: got {numbers} and samples {self.samples}, expected numbers above 0")
            if self.seconds != statistics.median(self.samples):
                raise ValueError(f"seconds: got {self.seconds}, expected the median of {self.samples}")
        elif not self.reason or self.samples or self.seconds is not None:
            raise ValueError(f"a row that is {self.status}: got reason {self.reason!r}, expected one, and no times")


@dataclass(frozen=True, kw_only=True)
class Record:
    """`complete` is False until the last row is in. clocks: MHz, W and degrees C after each group of rows."""

    schema: int
    bench: str
    complete: bool
    date: str
    seconds: float
    command: str
    machine: Mapping[str, str | int | float | None]
    versions: Mapping[str, str]
    commit: str | None
    source: str
    settings: Mapping[str, Any]
    clocks: tuple[Mapping[str, float], ...]
    units: Mapping[str, str]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        """Raises ValueError for another schema, and for numbers without a unit."""
        if self.schema != SCHEMA:
            raise ValueError(f"schema: got {self.schema}, expected {SCHEMA}")
        if missing := sorted(set(UNITS) - set(self.units)):
            raise ValueError(f"units: got none for {', '.join(missing)}")


def write(record: Record, path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(asdict(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def read(path: Path | str) -> Record:
    """Raises ValueError, naming the place, for a file that is not as `write` makes it."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: got no JSON ({error})") from error
    record = _load(Record, content, str(path))
    assert isinstance(record, Record)
    return record


def _load(kind: Any, value: Any, place: str) -> Any:
    """A value of JSON as a type; dataclasses with all of their keys and no others."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        return _object(kind, value, place)
    if origin is tuple and isinstance(value, list):
        return tuple(_load(inner[0], item, f"{place}[{n}]") for n, item in enumerate(value))
    if origin is Mapping or origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(value, dict):
            return {key: _load(inner[1], item, f"{place}.{key}") for key, item in value.items()}
    elif origin is Literal and value in inner:
        return value
    elif origin in (Union, types.UnionType):
        for option in inner:
            if option is type(None) and value is None:
                return None
            if option is not type(None) and value is not None and _is(value, option):
                return _load(option, value, place)
    elif isinstance(kind, type) and _is(value, kind):
        return float(value) if kind is float else value
    raise ValueError(f"{place}: got {value!r}, expected {getattr(kind, '__name__', kind)}")


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _object(kind: Any, value: Any, place: str) -> Any:
    names = {each.name for each in fields(kind)}
    if not isinstance(value, dict) or set(value) != names:
        got = sorted(set(value) ^ names) if isinstance(value, dict) else value
        raise ValueError(f"{place}: got {got} too many or missing, expected the keys of {kind.__name__}")
    hints = get_type_hints(kind)
    loaded = {name: _load(hints[name], item, f"{place}.{name}") for name, item in value.items()}
    try:
        return kind(**loaded)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
