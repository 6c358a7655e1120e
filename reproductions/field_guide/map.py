"""python -m reproductions.field_guide.map > reproductions/field_guide/MAP.md: all kinds of attention, from `variants`."""

from collections.abc import Iterator

from reproductions.field_guide.variants import VARIANTS, Variant

HEAD = """# The map

Made by `python -m reproductions.field_guide.map`; what it says of visibility and work is checked in the layers
([`exact/mapped.py`](exact/mapped.py)).

n: tokens; w: of a window; h, g: heads, groups of heads; d: of a head; m: random features; N: of a state. Work: how products grow
with n. Kept: numbers that generation keeps, for each dimension of a head unless stated, "-" where a kind does not generate.
Computes: softmax of scores, with whatever is added to them, over what is visible. What each takes on the machine of the stored
results, by length, stands in [`RESULTS.md`](RESULTS.md) under "Time of each kind on the map".
"""
COLUMNS = ("kind", "visible", "work", "kept", "computes", "when", "paper", "in `common`")


def page() -> str:
    return "\n".join([HEAD, *(line for source in ("self", "cross") for line in section(source))])


def section(source: str) -> Iterator[str]:
    yield f"## Queries of {'the same input' if source == 'self' else 'another input'} ({source})\n"
    yield row(COLUMNS)
    yield row(["---"] * len(COLUMNS))
    yield from (line(variant) for variant in VARIANTS if variant.source == source)
    yield ""


def line(of: Variant) -> str:
    work = "n" if of.work == 1 else f"n^{of.work:g}"
    paper = f"[{of.paper}](https://arxiv.org/abs/{of.paper})"
    return row((of.name, of.visible, work, of.kept, of.computes, of.when, paper, f"`{of.module}`"))


def row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
