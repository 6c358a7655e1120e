"""Biases in the flash kernels, and their gradients."""

from tests.mutants.fault import Fault

TILES, LAUNCH = "common/attention/kernels/tiles.py", "common/attention/kernels/launch.py"
BACKWARD = "common/attention/kernels/flash_backward.py"
BIAS = "common/attention/kernels/flash_bias.py"
TESTS = "tests/common/attention/kernels/test_flash.py::"
SIZES = (TESTS + "test_block_sizes",)
DROPOUT = (TESTS + "test_dropout_drops_what_the_reference_drops",)
HIDDEN = (TESTS + "test_a_bias_of_minus_infinity_hides",)
BATCH = (TESTS + "test_t5_in_a_batch_sums_over_it",)

FAULTS = (
    Fault("a bias of one head is read as if of each", LAUNCH, "0 if size == 1 else stride", "stride", HIDDEN),
    Fault(
        "the gradient of a bias lacks partial blocks",
        BACKWARD,
        "True, BIAS, DROPOUT, STORE, D,",
        "True, BIAS, DROPOUT, False, D,",
        SIZES,
    ),
    Fault("bias is not to base 2", TILES, "other=0.0).to(WIDE) * LOG2E", "other=0.0).to(WIDE)", SIZES),
    Fault(
        "ALiBi and T5 lie one diagonal off",
        LAUNCH,
        "[problem.q.shape[2] - 1 :], 0,",
        "[problem.q.shape[2] :], 0,",
        DROPOUT,
    ),
    Fault("ALiBi and T5 of the first head for all", LAUNCH, "0, bias.shape[1], -1, 1)", "0, 0, -1, 1)", DROPOUT),
    Fault(
        "the gradient of a bias by distance lies one off",
        BIAS,
        "first = -(-lq // block) * block - lq",
        "first = -(-lq // block) * block - lq + 1",
        (TESTS + "test_sums_along_diagonals",),
    ),
    Fault(
        "the gradient of a bias by distance reads the block beside",
        BIAS,
        "row + diagonal - (block_rows - 1)",
        "row + diagonal - block_rows",
        DROPOUT,
        count=2,
    ),
    Fault("the gradient of a bias by distance is of one batch entry", BIAS, "range(batches)", "range(1)", BATCH),
    Fault(
        "a diagonal lists its partial blocks as full",
        BIAS,
        "+ (old.tile >= 0)",
        "+ (old.tile >= len(lists.tiles))",
        (TESTS + "test_diagonals_of_blocks",),
    ),
)
