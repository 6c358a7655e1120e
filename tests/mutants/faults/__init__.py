"""All faults. One file for the kernels of a kind: a new kernel brings its own."""

from tests.mutants.fault import Fault
from tests.mutants.faults import additive, flash, flash_backward, flash_bias, masks, rotary

FAULTS: tuple[Fault, ...] = (
    *masks.FAULTS,
    *flash.FAULTS,
    *flash_backward.FAULTS,
    *flash_bias.FAULTS,
    *additive.FAULTS,
    *rotary.FAULTS,
)
