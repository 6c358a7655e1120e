"""The weights of every layer and head, as rows of small pictures."""

from __future__ import annotations

import numpy as np

from common.report.heads import NAMES, Heads
from common.report.render.markup import Markup, join, tag
from common.report.scores import Array
from common.report.views import HeadsView

CELL = 5
SHADES = 5


def heads(view: HeadsView) -> Markup:
    """One row of the report: a part for each sentence."""
    return join(
        tag("h3", f"{view.table.title}: {view.label}, seed {view.seed}"),
        tag("p", view.table.caption, " ", view.table.comparable, class_="caption"),
        tag("p", "Keys across, queries down, a picture a head; the darker, the more weight.", class_="caption"),
        [_sentence(one) for one in view.sentences],
    )


def _sentence(heads: Heads) -> Markup:
    parts = [
        tag("h4", heads.id),
        tag("p", "Source: ", " ".join(heads.source), class_="caption"),
        tag("p", "Target: ", " ".join(heads.target), class_="caption"),
    ]
    for (kind, layer), weights in heads.maps.items():
        label = f"{NAMES[kind]}, layer {layer}"
        pictures = [_picture(one, f"{label}, head {n}", *heads.words(kind)) for n, one in enumerate(weights, start=1)]
        parts += [tag("p", label, class_="caption"), tag("div", pictures, class_="heads")]
    return join(parts)


def _picture(weights: Array, title: str, queries: tuple[str, ...], keys: tuple[str, ...]) -> Markup:
    """A path of cells for each shade; the faintest shade is left blank."""
    height, width = (CELL * size for size in weights.shape)
    shade = np.ceil(weights * SHADES - 0.5).astype(int)
    paths = [
        tag(
            "path",
            d="".join(f"M{CELL * j} {CELL * i}h{CELL}v{CELL}h-{CELL}z" for i, j in np.argwhere(shade == level)),
            fill_opacity=f"{level / SHADES:.1f}",
        )
        for level in range(1, SHADES + 1)
        if (shade == level).any()
    ]
    i, j = (int(place) for place in np.unravel_index(weights.argmax(), weights.shape))
    parts = [
        tag("title", title),
        tag("desc", f"highest weight {weights[i, j]:.2f}: {queries[i]} to {keys[j]}"),
        tag("rect", width=width, height=height),
        *paths,
    ]
    return tag("svg", parts, viewBox=f"-1 -1 {width + 2} {height + 2}", width=width + 2, height=height + 2, role="img")
