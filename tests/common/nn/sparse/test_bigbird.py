"""BigBird's pattern: what it holds, that it stays, and that nothing but the draw decides it; the layer spelled out."""

from typing import Any

import pytest
import torch
from torch import Tensor

from common.nn.sparse import BigBird
from common.nn.sparse.bigbird import BigBirdAttention
from tests.common.nn.sparse.spec import D_MODEL, Sees, compare, made, reached, spelled_out, texts

ITC: dict[str, Any] = {"block": 4, "global_blocks": 1, "random_blocks": 2, "max_length": 48}
ETC: dict[str, Any] = {"block": 4, "global_tokens": 6}
BACKENDS = ["reference", "sdpa", "chunked"]


def drawn(layer: BigBirdAttention, blocks: int) -> list[set[int]]:
    """For each block of queries those it sees that are neither global nor near, of a sequence of so many blocks."""
    table, g = layer.table(torch.ones(1, blocks, dtype=torch.bool))[0], layer.global_blocks
    seen = [set(row.nonzero().flatten().tolist()) for row in table]
    for i, row in enumerate(seen):
        sure = (
            set(range(blocks))
            if i < g
            else {*range(g), *range(max(i - layer.near, 0), min(i + layer.near + 1, blocks))}
        )
        assert row >= sure, "global blocks and the window are seen"
        row -= sure
    return seen


def itc(layer: int = 0, **settings: Any) -> BigBirdAttention:
    chosen: dict[str, Any] = {"backend": "chunked"} | ITC | settings
    return BigBird(**chosen)(12, 3, layer, 2)


def test_each_block_sees_its_random_ones_beside_window_and_global_blocks() -> None:
    """As many as asked for, distinct from the rest; all that are left where these are fewer."""
    for i, row in enumerate(drawn(itc(), 12)):
        assert len(row) == (0 if i < 1 else 2)
    assert [len(row) for row in drawn(itc(global_blocks=2, window_blocks=5), 6)] == [0, 0, 1, 0, 0, 1]
    assert (
        drawn(itc(), 1) == [set()] and [len(row) for row in drawn(itc(random_blocks=0, max_length=None), 9)] == [0] * 9
    )
    assert [len(row) for row in drawn(itc(global_blocks=0, random_blocks=3), 12)] == [3] * 12


def test_a_row_by_hand() -> None:
    """Block 4 of 7 has 0 (global) and 3, 4, 5 (window); of 1, 2 and 6 it draws the two that come first in its order."""
    layer = itc()
    assert layer.order is not None
    layer.order[4, :7] = torch.tensor([0, 6, 9, 1, 2, 3, 5])
    assert drawn(layer, 7)[4] == {1, 6}
    assert drawn(layer, 6)[4] == {1, 2}


def test_it_never_changes() -> None:
    """Training or not, call after call, in a shorter sequence between two long ones, saved and loaded."""
    layer, x = itc(), torch.randn(1, 48, 12)
    once, order = drawn(layer, 12), layer.order
    outputs = []
    for module in (layer.train(), layer.eval(), layer.train()):
        outputs.append(module(x))
        module(x[:, :9])
        assert drawn(layer, 12) == once and layer.order is order
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])
    other = itc(seed=5)
    assert drawn(other, 12) != once
    other.load_state_dict(layer.state_dict())
    assert drawn(other, 12) == once and torch.equal(other(x), outputs[0])


def test_torchs_own_generator_is_left_alone() -> None:
    states = []
    for settings in ({}, {"random_blocks": 0}):
        torch.manual_seed(0)
        layer = itc(**settings)
        states.append(torch.get_rng_state())
        layer(torch.zeros(1, 20, 12))
        assert torch.equal(torch.get_rng_state(), states[-1])
    assert torch.equal(*states)


def test_layers_and_seeds_draw_differently_and_the_same_again() -> None:
    patterns = [drawn(itc(layer, seed=seed), 12) for seed in (0, 1) for layer in range(4)]
    assert all(a != b for n, a in enumerate(patterns) for b in patterns[:n])
    assert drawn(itc(2, seed=1), 12) == patterns[6]


def test_the_draw_is_uniform_over_the_whole_sequence() -> None:
    """Block 6 of 12 draws 2 of 8 (all but 0, 5, 6 and 7): each comes with probability 1/4, each pair with 1/28. Of 4000
    draws, within 5 standard deviations; the last blocks as often as the first."""
    count, pairs = torch.zeros(12), dict[frozenset[int], int]()
    for seed in range(4000):
        row = drawn_row(seed)
        for column in row:
            count[column] += 1
        pairs[frozenset(row)] = pairs.get(frozenset(row), 0) + 1
    free = [1, 2, 3, 4, 8, 9, 10, 11]
    assert (count[free] - 1000).abs().max() < 5 * (4000 * 0.25 * 0.75) ** 0.5 and count.sum() == 8000
    assert len(pairs) == 28 and max(abs(n - 4000 / 28) for n in pairs.values()) < 5 * (4000 / 28) ** 0.5


def drawn_row(seed: int) -> set[int]:
    layer = BigBird(backend="chunked", seed=seed, **ITC)(1, 1, 1, 2)
    table = layer.table(torch.ones(1, 12, dtype=torch.bool))[0, 6]
    return set(table.nonzero().flatten().tolist()) - {0, 5, 6, 7}


def sees(layer: BigBirdAttention, lengths: list[int], b: int) -> Sees:
    """Of one sample, whose blocks are counted without padding. Positions with extra tokens in front."""
    n = -(-lengths[b] // layer.block)
    table = layer.table(torch.ones(1, n, dtype=torch.bool))[0]

    def allowed(h: int, i: int, j: int) -> bool:
        if min(i, j) < layer.extra:
            return True
        return bool(table[(i - layer.extra) // layer.block, (j - layer.extra) // layer.block])

    return allowed


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [ITC, ETC, ETC | {"global_tokens": 8}], ids=["itc", "etc", "etc in whole blocks"])
@pytest.mark.parametrize("lengths", [[21], [16, 9, 1], [3, 2], [1]], ids=str)
def test_spelled_out(lengths: list[int], kind: dict[str, Any], backend: str) -> None:
    layer = made(BigBird(backend=backend, **kind))
    assert isinstance(layer, BigBirdAttention)
    x, real = texts([layer.extra + n for n in lengths])
    x.requires_grad_()
    rows = [spelled_out(layer, x[b : b + 1], real[b : b + 1], sees(layer, lengths, b)) for b in range(len(lengths))]
    compare(layer, torch.cat(rows), x, real)
    if len(lengths) == 1:
        compare(layer, torch.cat([spelled_out(layer, x, real, sees(layer, lengths, 0))]), x, None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [ITC, ETC], ids=["itc", "etc"])
def test_neither_padding_nor_neighbours_matter(kind: dict[str, Any], backend: str) -> None:
    """Not even by what is drawn: blocks of padding are none."""
    layer = made(BigBird(backend=backend, **kind))
    extra = kind.get("global_tokens", 0)
    lengths = [extra + n for n in (40, 21, 1)]
    x, real = texts(lengths)
    together, junk = (layer(part, real=real) for part in (x, x.masked_fill(~real[..., None], torch.nan)))
    for b, length in enumerate(lengths):
        alone = layer(x[b : b + 1, :length])
        torch.testing.assert_close(together[b, :length], alone[0])
        torch.testing.assert_close(junk[b, :length], alone[0])


def test_what_a_token_reaches() -> None:
    """Blocks whose queries see its block, by the table's column, and nothing else."""
    layer = made(BigBird(backend="chunked", **ITC))
    assert isinstance(layer, BigBirdAttention)
    x, _ = texts([46])
    for position in (0, 17, 45):
        column = layer.table(torch.ones(1, 12, dtype=torch.bool))[0, :, position // 4]
        assert reached(layer, x, position) == column.repeat_interleave(4)[:46].nonzero().flatten().tolist()


def test_random_blocks_lie_in_the_state_dict() -> None:
    assert set(itc().state_dict()) - set(itc(random_blocks=0).state_dict()) == {"order"}
    assert itc().state_dict()["order"].shape == (12, 12)
    assert [p.numel() for p in itc().parameters()] == [144, 12] * 4, "q, k, v and o"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "block": ({"block": 0}, "expected a block of 1 or more"),
    "random": ({"random_blocks": -1}, "expected a block of 1 or more, and counts of 0 or more"),
    "window": ({"window_blocks": 2}, "window_blocks: got 2, expected an odd number"),
    "both": ({"global_tokens": 2}, r"global_blocks \(ITC\) and global_tokens \(ETC\): got both"),
    "length": ({"max_length": None}, "max_length: got None, expected the longest length"),
}


@pytest.mark.parametrize(("settings", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        itc(**settings)


def test_calls_that_do_not_fit_are_refused() -> None:
    x: Tensor = torch.randn(1, 49, D_MODEL)
    assert itc()(x[:, :48]).shape == (1, 48, 12)
    with pytest.raises(ValueError, match="tokens: got 13 blocks of 4, expected at most 12, those of max_length"):
        itc()(x)
    with pytest.raises(ValueError, match="is_global: got global tokens, expected None, as BigBird"):
        itc()(x[:, :8], is_global=torch.ones(1, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="x: got 6 positions, expected 6 extra tokens and one or more behind"):
        BigBird(backend="chunked", **ETC)(12, 3, 0, 1)(x[:, :6])
