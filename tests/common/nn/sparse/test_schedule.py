"""Windows and dilations over the layers, worked by hand."""

from typing import Any

import pytest

from common.nn.sparse import Windowed
from common.nn.sparse.schedule import dilations, windows


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((230, None, "linear", 3), [230, 230, 230]),
        ((32, 512, "linear", 5), [32, 152, 272, 392, 512]),
        ((512, 32, "linear", 5), [512, 392, 272, 152, 32]),
        ((1, 4, "linear", 3), [1, 3, 4]),
        ((4, 1, "linear", 3), [4, 3, 1]),
        ((32, 512, "doubling", 5), [32, 64, 128, 256, 512]),
        ((512, 32, "doubling", 5), [512, 256, 128, 64, 32]),
        ((32, 128, "doubling", 6), [32, 32, 64, 64, 128, 128]),
        ((8, 16, "doubling", 5), [8, 8, 8, 16, 16]),
        ((7, 7, "doubling", 2), [7, 7]),
        ((32, 512, "linear", 1), [32]),
    ],
)
def test_windows(given: Any, expected: list[int]) -> None:
    assert windows(*given) == expected


def test_small_windows_for_the_lower_layers() -> None:
    """Of the paper's 12 layers and 32 to 512 (section 4.1, table 4): from end to end, never smaller than the layer below."""
    for growth in ("linear", "doubling"):
        found = windows(32, 512, growth, 12)
        assert found == sorted(found) and (found[0], found[-1]) == (32, 512) and len(found) == 12
        assert windows(512, 32, growth, 12) == found[::-1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((-1, None, "linear", 2), "windows: got -1 to None over 2 layers"),
        ((4, -2, "linear", 2), "windows: got 4 to -2 over 2 layers"),
        ((4, 12, "doubling", 4), "windows: got 4 and 12 over 4 layers, expected one to be the other doubled"),
        ((4, 64, "doubling", 4), "windows: got 4 and 64 over 4 layers"),
        ((0, 8, "doubling", 4), "windows: got 0 and 8"),
        ((4, 8, "squares", 2), "growth: got 'squares', expected linear or doubling"),
    ],
)
def test_what_does_not_fit_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        windows(*given)


def test_dilations() -> None:
    """Appendix A: gaps of 0 in layers 0 to 5, then 1, 2 and 3, two layers each: neighbours 1, 2, 3 and 4 apart."""
    of_paper = [1] * 6 + [2, 2, 3, 3, 4, 4]
    assert dilations(of_paper, 12) == of_paper and dilations(2, 3) == [2, 2, 2]
    for wrong in ([1, 2], 0, [1, 0, 1]):
        with pytest.raises(ValueError, match="dilation: got .* expected one of 1 or more, or one for each of 3 layers"):
            dilations(wrong, 3)


def test_each_layer_has_its_own() -> None:
    factory = Windowed(
        backend="chunked", window=2, top_window=8, growth="doubling", causal=True, dilation=[1, 2, 3], dilated_heads=1
    )
    layers = [factory(8, 2, n, 3) for n in range(3)]
    assert [layer.window for layer in layers] == [2, 4, 8]
    assert [layer.dilation for layer in layers] == [[1, 1], [1, 2], [1, 3]]
    assert layers[1].sides(0) == (4, 0) and layers[1].sides(2) == (16, 0)
