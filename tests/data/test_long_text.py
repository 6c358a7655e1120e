import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.long_text import LongText, apart, overlapping
from data.stages import Stage, arrange, read_stages
from data.stream import Item


def scored_targets(pieces) -> list[int]:
    """Positions of the symbols that are predicted, piece by piece."""
    rows = zip(pieces.starts, pieces.ends, pieces.firsts, strict=True)
    return [int(i) + 1 for start, end, first in rows for i in range(start + first, end)]


def test_overlapping_pieces_by_hand():
    """11 symbols, pieces of 6, step 2: targets 1-6, then 7-8, then 9-10."""
    pieces = overlapping(11, 6, 2)
    assert pieces.starts.tolist() == [0, 2, 4]
    assert pieces.ends.tolist() == [6, 8, 10]
    assert pieces.firsts.tolist() == [0, 4, 4]
    assert scored_targets(pieces) == list(range(1, 11))


def test_the_papers_evaluation():
    """Sequences of 32,256, step 512, on the five million symbols of enwik8's test."""
    pieces = overlapping(5_000_000, 32_256, 512)
    assert len(pieces) == 1 + -(-(4_999_999 - 32_256) // 512) == 9_704
    assert set(pieces.firsts[1:].tolist()) == {32_256 - 512}
    assert set((pieces.ends - pieces.starts)[:-1].tolist()) == {32_256}


@given(st.integers(2, 200), st.integers(1, 40), st.data())
def test_every_symbol_but_the_first_is_scored_once(symbols, length, data):
    step = data.draw(st.integers(1, length))
    pieces = overlapping(symbols, length, step)
    assert scored_targets(pieces) == list(range(1, symbols))
    sizes = pieces.ends - pieces.starts
    assert (sizes <= length).all() and (sizes > pieces.firsts).all() and (sizes[:-1] == length).all()


@given(st.integers(1, 200), st.integers(1, 40))
def test_pieces_apart_hold_every_symbol_once(symbols, length):
    pieces = apart(symbols, length)
    assert [int(i) for a, b in zip(pieces.starts, pieces.ends, strict=True) for i in range(a, b)] == list(
        range(symbols)
    )


@pytest.mark.parametrize(("cut", "symbols"), [(lambda n: overlapping(n, 4, 2), 1), (lambda n: apart(n, 4), 0)])
def test_a_text_with_nothing_to_predict_is_refused(cut, symbols):
    with pytest.raises(ValueError, match=f"text .*{symbols or 'without a symbol'}.*, expected at least"):
        cut(symbols)


def test_items_are_named_after_the_document_they_start_in():
    text = LongText(np.zeros(10, dtype=np.uint8), np.array([0, 4, 4, 9]), ["a", "empty", "b", "c"], "wxyz")
    places = {0: ("a +0", "w"), 3: ("a +3", "w"), 4: ("b +0", "y"), 8: ("b +4", "y"), 9: ("c +0", "z")}
    for position, (name, cluster) in places.items():
        assert text.item(position, 7) == Item(name, f"{cluster}, part 1", 7)


SHARES = [
    {"share": 0.5, "length": 4, "batch": 2},
    {"share": 0.3, "length": 8, "batch": 2},
    {"share": 0.2, "length": 16, "batch": 1},
]


def test_stages_by_hand():
    """Batches of 8, 16 and 16 targets; 400 in all: 200, 120 and 80 make 25, 7.5 and 5 of them."""
    stages = arrange(read_stages(SHARES), 400, lambda stage: stage.length * stage.batch)
    assert stages.ends == [25, 33, 38]  # 25 * 8 = 200; 8 * 16 = 128, 8 too many; 72 are left of 80: 4.5
    assert [stages.of(k) for k in (0, 24, 25, 32, 33, 37, 38, 1000)] == [0, 0, 1, 1, 2, 2, 2, 2]
    assert [stages.start(i) for i in range(3)] == [0, 25, 33]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(10_000, 10**6))
def test_each_stage_gets_its_share(weights, total):
    stages = arrange(
        [Stage(w / sum(weights), 4 * w, 3) for w in weights], total, lambda stage: stage.length * stage.batch
    )
    seen, share = 0, 0.0
    for i, stage in enumerate(stages.stages):
        seen += (stages.ends[i] - stages.start(i)) * stage.length * stage.batch
        share += stage.share
        assert share * total - 1 <= seen < share * total + stage.length * stage.batch
    assert seen >= total - 1


def test_shares_that_are_no_whole_are_refused():
    with pytest.raises(ValueError, match=r"got shares \[0\.5, 0\.3\], expected them to add up to 1"):
        read_stages(SHARES[:2])
    with pytest.raises(ValueError, match="expected a share above 0"):
        Stage(0, 4, 2)
