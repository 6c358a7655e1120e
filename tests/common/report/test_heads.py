"""Weights of every head: read, checked against their words, and drawn."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from common.report.heads import Heads, read_heads
from common.report.published import Plot, Table
from common.report.render.heads_html import heads
from common.report.views import HeadsView

SOURCE, TARGET = ["a", "b", "</s>"], ["<s>", "x"]
TABLE = Table(
    "heads", "Figures 3 to 5", "caption", "", "", "read", "", "", "", (), None, (), (), Plot("heads", (), "", ""), None
)


def file(tmp_path: Path, **maps: list) -> Path:
    named = {key.replace("__", "."): value for key, value in maps.items()}
    path = tmp_path / "heads.json"
    path.write_text(json.dumps([{"id": "s1", "source": SOURCE, "target": TARGET, "maps": named}]))
    return path


def test_maps_are_in_the_order_of_what_attends_and_of_the_layers(tmp_path: Path) -> None:
    square, causal, cross = [[[100, 0, 0]] * 3] * 2, [[[100, 0], [25, 75]]] * 2, [[[0, 0, 100], [50, 25, 25]]] * 2
    names = {
        "decoder__blocks__0__attention": causal,
        "decoder__blocks__0__cross": cross,
        "encoder__blocks__10__attention": square,
        "encoder__blocks__2__attention": square,
    }
    (found,) = read_heads(file(tmp_path, **names))
    assert list(found.maps) == [("encoder", 3), ("encoder", 11), ("decoder", 1), ("cross", 1)]
    assert found.words("encoder") == (tuple(SOURCE), tuple(SOURCE))
    assert found.words("decoder") == (tuple(TARGET), tuple(TARGET))
    assert found.words("cross") == (tuple(TARGET), tuple(SOURCE))
    np.testing.assert_allclose(found.maps["cross", 1][1], [[0, 0, 1], [0.5, 0.25, 0.25]])


def test_a_map_that_does_not_fit_its_words_is_named(tmp_path: Path) -> None:
    path = file(tmp_path, decoder__blocks__0__cross=[[[100, 0], [0, 100]]])
    with pytest.raises(
        ValueError, match=r"heads.json: maps.decoder.blocks.0.cross: expected heads x 2 x 3, got \(1, 2, 2\)"
    ):
        read_heads(path)


def test_a_picture_a_head_with_its_cells_where_the_weights_are() -> None:
    """Weights of 1 and of a half: two shades; 0.05 is too faint to show."""
    weights = np.array([[[1.0, 0.0, 0.0], [0.45, 0.5, 0.05]], [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]])
    html = heads(
        HeadsView(TABLE, "Transformer", 1, (Heads("s1", tuple(SOURCE), tuple(TARGET), {("cross", 2): weights}),))
    )
    first, second = re.findall(r"<svg.*?</svg>", html)
    assert "attention of the decoder to the encoder, layer 2, head 1" in first and "head 2" in second
    shades = {
        opacity: set(re.findall(r"M(\d+ \d+)h5v5h-5z", cells))
        for cells, opacity in re.findall(r'<path d="(.*?)" fill-opacity="(.*?)"', first)
    }
    assert shades == {"1.0": {"0 0"}, "0.4": {"0 5", "5 5"}}
    assert "highest weight 1.00: &lt;s&gt; to a" in first and "highest weight 1.00: &lt;s&gt; to &lt;/s&gt;" in second
