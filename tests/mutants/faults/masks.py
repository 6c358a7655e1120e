"""Masks, and their lowering to the lists of blocks that the kernels read."""

from tests.mutants.fault import Fault

MASKS, BLOCKS = "common/attention/masks.py", "common/attention/blocks.py"
HAND = ("tests/common/attention/test_masks.py::test_by_hand",)
STATUS = ("tests/common/attention/test_masks.py::test_the_status_of_a_block_is_never_wrong",)
LISTS = "tests/common/attention/test_blocks.py::"
WINDOW = (LISTS + "test_a_causal_window_by_hand",)

FAULTS = (
    Fault(
        "window reaches one key less to the left",
        MASKS,
        "keep &= distance >= -self.left",
        "keep &= distance > -self.left",
        HAND,
    ),
    Fault(
        "window reaches one key further to the right",
        MASKS,
        "keep &= distance <= self.right",
        "keep &= distance <= self.right + 1",
        HAND,
    ),
    Fault("causal is aligned top-left", MASKS, "distance = j - (i + lk - lq)", "distance = j - i", HAND),
    Fault(
        "blocks of a window are judged as if aligned top-left",
        MASKS,
        "nearest, farthest = j0 - (i1 + lk - lq), j1 - (i0 + lk - lq)",
        "nearest, farthest = j0 - i1, j1 - i0",
        STATUS,
    ),
    Fault(
        "a block cut by a window's left edge is called full",
        MASKS,
        "full & (nearest >= -self.left)",
        "full & (farthest >= -self.left)",
        STATUS,
    ),
    Fault(
        "the last block of keys is full though cut off",
        BLOCKS,
        "status[:, -1] = status[:, -1].clamp(max=PARTIAL)",
        "pass",
        (LISTS + "test_full_blocks_lie_inside_the_keys_but_may_reach_beyond_the_queries",),
    ),
    Fault("tiles allow keys beyond Lk", BLOCKS, "inside = (i < lq) & (j < lk)", "inside = (i < lq) & (j >= 0)", WINDOW),
    Fault(
        "a tile that length cuts off serves for all of its distance",
        BLOCKS,
        "torch.stack((rows * block_q - columns * block_k, cut), 1)",
        "torch.stack((rows * block_q - columns * block_k, 0 * cut), 1)",
        WINDOW,
    ),
    Fault(
        "a partial block is listed as full",
        BLOCKS,
        "elif tile.all():",
        "elif tile.sum() * 4 >= tile.numel() * 3:",
        WINDOW,
    ),
    Fault(
        "full blocks are listed as partial, without a tile",
        BLOCKS,
        "full = torch.bincount(row[partial == 0], minlength=rows)",
        "full = torch.zeros_like(count)",
        (LISTS + "test_lists_mean_what_the_mask_means",),
    ),
)
