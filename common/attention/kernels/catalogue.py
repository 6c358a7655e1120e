"""All that `python -m common.attention.kernels` compiles: each kernel, by target, dtype, head_dim and configuration."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from common.attention.kernels import static
from common.attention.kernels.configurations import CONFIGURATIONS, LINEAR_PASSES, TARGETS, Configuration, choose
from common.attention.kernels.launch import Launch

HEADLINE = (64, 128)
SPLIT = (80, 96)
"""head_dims that are held in two parts, with the configurations for 128."""
PLAIN, MORE, AMD = "16 bit", "16 bit +", "gfx942"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
DECODE = ("", "int8", "64 a page", "int8, 16 a page")
"""How the cache is stored."""
MORE_HEADS = ("64 heads", "64 heads, int8, 16 a page")
"""The largest tile of rows."""
STEPS = (1, 50)
"""Queries a sentence of additive attention: a decoder's step, and all steps of a sentence."""


@dataclass(frozen=True)
class Row:
    """section: of the page. kernel: a pass of flash attention, "delta", "additive <part>", "linear <pass>", "decode <part>" or
    "rotary". size: head_dim (of linear attention that of the values), or of additive attention the queries a sentence. extra:
    "" or what else the kernel does. headline: must neither spill nor multiply but on tensor cores.
    """

    section: str
    kernel: str
    target: str
    dtype: str
    size: int
    configuration: Configuration | None = None
    extra: str = ""
    headline: bool = False

    @property
    def in_use(self) -> bool:
        """Whether it is the one of its configurations that is chosen."""
        if self.configuration is None:
            return False
        part, table = (
            "query" if self.kernel == "delta" else self.kernel,
            TARGETS[0] if self.target == AMD else self.target,
        )
        more = bool(self.extra) or part == "bias"
        return self.configuration == choose(part, self.size, DTYPES[self.dtype], more, table)

    def launch(self) -> Launch:
        dtype = DTYPES[self.dtype]
        if self.kernel == "rotary":
            return static.rotary_example(self.size, dtype)
        if self.kernel.startswith("additive "):
            return static.additive_example(self.kernel.removeprefix("additive "), self.size, dtype)
        if self.kernel.startswith("linear "):
            part, table = self.kernel.removeprefix("linear "), _table_of(self.target)
            kind = {"causal": "not causal" not in self.extra, "log": "log" in self.extra}
            return static.linear_example(part, self.size, dtype, table, **kind)
        if self.kernel.startswith("decode "):
            return self._decode(dtype)
        options: dict[str, Any] = {"configuration": self.configuration}
        if "bias" in self.extra:
            options["bias"] = torch.zeros(2, 1023)
        if "dropout" in self.extra:
            options["dropout_p"] = 0.1
        return static.example(self.kernel, self.size, dtype, _table_of(self.target), **options)

    def _decode(self, dtype: torch.dtype) -> Launch:
        heads, page_size = (re.search(rf"(\d+) {what}", self.extra) for what in ("heads", "a page"))
        chosen: dict[str, Any] = {"heads": int(heads[1])} if heads else {}
        chosen |= {"page_size": int(page_size[1])} if page_size else {}
        chosen |= {"stored": torch.int8} if "int8" in self.extra else {}
        return static.decode_example(
            self.kernel.removeprefix("decode "), self.size, dtype, _table_of(self.target), **chosen
        )


def rows() -> Iterator[Row]:
    """In the order of the page."""
    for target in TARGETS:
        yield from _plain(target)
    for target in TARGETS:
        yield from _more(target)
    for target in TARGETS:
        yield from _table(f"flash attention, fp32, {target}", target, "fp32", "32 bit")
    for target in TARGETS:
        yield from _others(f"additive attention (A 1000, D 2000, S 50) and rotary embedding, {target}", target, STEPS)
    for target in TARGETS:
        yield from _linear(target)
    for target in TARGETS:
        yield from _decode(target)
    section = "AMD gfx942: first configurations of sm_80, head_dims 64 and 128 alone; fp32 without its slow passes"
    for size in HEADLINE:
        yield from _first(section, AMD, "bf16", size)
        yield from _first(section, AMD, "bf16", size, "bias + dropout")
    yield Row(section, "forward", AMD, "fp32", 64, _choice("forward", 64, "fp32", "", AMD))
    yield from _others(section, AMD, STEPS[:1])
    for extra in ("", "log"):
        yield from _passes(section, AMD, "bf16", 64, extra)
    for size in HEADLINE:
        for extra in DECODE:
            yield Row(section, "decode split", AMD, "bf16", size, None, extra)
        yield Row(section, "decode merge", AMD, "bf16", size)


def _plain(target: str) -> Iterator[Row]:
    """16 bit without bias and dropout: all configurations in bf16, the first ones in fp16 and for head_dims between."""
    section = f"flash attention, {{}}, {target}"
    yield from _table(section.format("bf16"), target, "bf16", PLAIN)
    for size in SPLIT:
        yield from _first(section.format("bf16, head_dims in two parts, first configurations"), target, "bf16", size)
    for size in HEADLINE:
        yield from _first(section.format("fp16, first configurations"), target, "fp16", size)


def _more(target: str) -> Iterator[Row]:
    """Each row of the table with both a bias and dropout, and those of training with dropout alone."""
    section = f"flash attention, bf16, bias by distance and dropout, {target}"
    yield from _table(section, target, "bf16", MORE, "bias + dropout")
    for size in HEADLINE:
        yield from _first(section, target, "bf16", size, "dropout")


def _table(section: str, target: str, dtype: str, kind: str, extra: str = "") -> Iterator[Row]:
    """Every configuration of a kind; the kernel "delta" has those of queries."""
    for key, listed in CONFIGURATIONS.items():
        if (key.kind, key.target) == (kind, target):
            headline = kind == PLAIN and key.size in HEADLINE
            for configuration in listed:
                yield Row(section, key.part, target, dtype, key.size, configuration, extra, headline)
                if key.part == "query" and kind == PLAIN:
                    yield Row(section, "delta", target, dtype, key.size, configuration, extra, headline)


def _first(section: str, target: str, dtype: str, size: int, extra: str = "") -> Iterator[Row]:
    """The passes with what `choose` gives."""
    for kernel in ("forward", "delta", "key_value", "query"):
        if not (kernel == "delta" and extra):
            yield Row(section, kernel, target, dtype, size, _choice(kernel, size, dtype, extra, target), extra)


def _others(section: str, target: str, steps: tuple[int, ...]) -> Iterator[Row]:
    for dtype in ("fp32", "bf16"):
        for count in steps:
            for part in static.ADDITIVE:
                yield Row(section, f"additive {part}", target, dtype, count)
        for size in HEADLINE:
            yield Row(section, "rotary", target, dtype, size)


def _linear(target: str) -> Iterator[Row]:
    section = f"linear attention, causal unless said otherwise, 256 features, {target}"
    for extra in ("", "log"):
        for size in HEADLINE:
            yield from _passes(section, target, "bf16", size, extra, True)
        yield from _passes(section, target, "fp32", 64, extra)
    yield from _passes(section, target, "bf16", 64, "not causal")
    yield from _passes(section, target, "fp16", 64, "log")


def _passes(section: str, target: str, dtype: str, size: int, extra: str, headline: bool = False) -> Iterator[Row]:
    """All of linear attention."""
    for part in LINEAR_PASSES:
        yield Row(section, f"linear {part}", target, dtype, size, None, extra, headline)


def _decode(target: str) -> Iterator[Row]:
    """Of the merge one is enough for all."""
    section = f"decoding, a query of 8 heads on one key head unless said otherwise, {target}"
    for size in HEADLINE:
        for extra in (*DECODE, *MORE_HEADS):
            yield Row(section, "decode split", target, "bf16", size, None, extra, True)
        yield Row(section, "decode merge", target, "bf16", size, None, "", True)
        yield Row(section, "decode split", target, "fp16", size, None, "int8")
        yield Row(section, "decode split", target, "fp32", size)
    for size in (*SPLIT, 256):
        yield Row(section, "decode split", target, "bf16", size, None, "64 heads")
    yield Row(section, "decode merge", target, "fp32", 64)


def _choice(kernel: str, size: int, dtype: str, extra: str, target: str) -> Configuration:
    """The one in use."""
    more = bool(extra) or kernel == "bias"
    return choose("query" if kernel == "delta" else kernel, size, DTYPES[dtype], more, _table_of(target))


def _table_of(target: str) -> str:
    """The one of TARGETS that `target_of` gives a device of this target."""
    return TARGETS[0] if target == AMD else target
