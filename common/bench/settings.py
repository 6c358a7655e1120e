"""What to time, from key=value words."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from common.bench.contestants import CONTESTANTS
from common.bench.flops import PASSES, Pass
from common.bench.workload import DTYPES, MASKS, Shape, mask_of

MEANING = {
    "device": "cpu, cuda or cuda:N",
    "lengths": "tokens of queries and of keys",
    "batch": "sequences",
    "tokens": "instead of batch: as many sequences as make so many tokens, one at least",
    "hidden": "heads x head_dim",
    "head_dims": "each is a part of hidden",
    "kv_heads": "heads of keys and values; none: as many as of queries",
    "dtypes": ", ".join(DTYPES),
    "backends": ", ".join(CONTESTANTS),
    "masks": MASKS,
    "block": "side of the blocks of blocks:DENSITY, tokens",
    "dropout": "shares of the weights",
    "passes": ", ".join(PASSES),
    "repeats": "samples of each row, taken in turns",
    "budget": "seconds that a row may take",
    "product": "side of the square matrix product that is taken as the peak",
    "threads": "of a CPU; none: torch's own choice",
    "seed": "of inputs, masks and dropout",
    "out": "the file; none: runs/bench/attention-DEVICE-TIME.json",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What MEANING says."""

    device: str
    lengths: tuple[int, ...]
    batch: int
    tokens: int | None
    hidden: int
    head_dims: tuple[int, ...]
    kv_heads: int | None
    dtypes: tuple[str, ...]
    backends: tuple[str, ...]
    masks: tuple[str, ...]
    block: int
    dropout: tuple[float, ...]
    passes: tuple[Pass, ...]
    repeats: int
    budget: float
    product: int
    threads: int | None
    seed: int
    out: str | None

    def __post_init__(self) -> None:
        """Raises ValueError for names and numbers that mean nothing."""
        for name, known in (("dtypes", DTYPES), ("backends", CONTESTANTS), ("passes", PASSES)):
            for given in getattr(self, name):
                if given not in known:
                    raise ValueError(f"{name}: got {given!r}, expected of {', '.join(known)}")
        least = min(*self.lengths, self.batch, *self.head_dims, self.hidden, self.block, self.repeats, self.product)
        if least < 1 or (self.tokens or 1) < 1 or (self.kv_heads or 1) < 1:
            raise ValueError(f"settings: got {least}, expected lengths, sizes and repeats of 1 or more")
        for size in self.head_dims:
            if self.hidden % size or (self.kv_heads and self.hidden // size % self.kv_heads):
                raise ValueError(
                    f"hidden: got {self.hidden}, expected a multiple of head_dims {size} (and kv_heads {self.kv_heads})"
                )
        if any(not 0 <= p < 1 for p in self.dropout):
            raise ValueError(f"dropout: got {self.dropout}, expected from 0 to below 1")
        for name in self.masks:
            mask_of(name, self.shape(1, self.head_dims[0], self.dtypes[0]), block=self.block, seed=self.seed)

    def shape(self, length: int, head_dim: int, dtype: str) -> Shape:
        batch = self.batch if self.tokens is None else max(1, self.tokens // length)
        heads = self.hidden // head_dim
        return Shape(batch, heads, self.kv_heads or heads, length, head_dim, dtype, self.device)


def defaults(device: str) -> dict[str, Any]:
    """CPU: the shape of Dao et al. 2022's tables 9-20 with a batch of one; GPU: the shapes of Dao 2023, section 4.1."""
    common = {
        "batch": 1, "kv_heads": None, "masks": ("full", "causal", "causal-window:128", "blocks:0.25"), "block": 128,
        "dropout": (0.0, 0.1), "passes": tuple(PASSES), "repeats": 7, "threads": None, "seed": 0, "out": None,
    }  # fmt: skip
    lengths = tuple(2**n for n in range(7, 17))
    if device == "cpu":
        return common | {
            "device": device, "lengths": lengths[:-2], "tokens": None, "hidden": 512, "head_dims": (64,),
            "dtypes": ("fp32",), "backends": ("reference", "plain", "torch:flash", "sdpa", "flex", "chunked"), "budget": 20.0,
            "product": 2048,
        }  # fmt: skip
    return common | {
        "device": device, "lengths": lengths, "tokens": 16384, "hidden": 2048, "head_dims": (64, 128),
        "dtypes": ("bf16",), "backends": CONTESTANTS, "budget": 20.0, "product": 8192,
    }  # fmt: skip


def parse(words: Sequence[str]) -> Settings:
    """lengths=128,256 and the like over the defaults of the device; none: no value. Raises ValueError, naming the word."""
    given: dict[str, str] = {}
    known = [each.name for each in fields(Settings)]
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in known:
            raise ValueError(f"got {word!r}, expected key=value with a key of {', '.join(known)}")
        given[key] = value
    device = given.pop("device", "cuda" if torch.cuda.is_available() else "cpu")
    if device != "cpu" and (not device.startswith("cuda") or not torch.cuda.is_available()):
        raise ValueError(f"device: got {device!r}, expected cpu{' or cuda' * torch.cuda.is_available()}")
    hints = get_type_hints(Settings)
    read = {key: _value(hints[key], value, key) for key, value in given.items()}
    return Settings(**defaults(device) | read)


def describe(device: str) -> str:
    """Each setting with its default on this device and its meaning."""
    own = defaults(device)
    lines = [f"  {key}={_text(own[key])}\n      {meaning}" for key, meaning in MEANING.items()]
    return "\n".join(["settings, with their defaults here:", *lines])


def _value(kind: Any, text: str, key: str) -> Any:
    """Of one of the types that Settings has: tuples by commas, None as none."""
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return text
    if isinstance(kind, UnionType):
        return None if text == "none" else _value(inner[0], text, key)
    if inner:
        return tuple(_value(inner[0], part, key) for part in text.split(","))
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{key}: got {text!r}, expected {kind.__name__}") from None


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return "none" if value is None else str(value)
