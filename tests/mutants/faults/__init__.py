"""All faults. One file for the kernels of a kind, or a model: a new one brings its own."""

from tests.mutants.fault import Fault
from tests.mutants.faults import (
    additive,
    cache,
    decode,
    field_guide,
    field_guide_trained,
    flash,
    flash_backward,
    flash_bias,
    linear,
    luong,
    masks,
    mechanisms,
    rotary,
    sparse,
    stored,
    texts,
    transformer,
    vision,
)

FAULTS: tuple[Fault, ...] = (
    *masks.FAULTS,
    *flash.FAULTS,
    *flash_backward.FAULTS,
    *flash_bias.FAULTS,
    *additive.FAULTS,
    *cache.FAULTS,
    *decode.FAULTS,
    *linear.FAULTS,
    *rotary.FAULTS,
    *transformer.FAULTS,
    *luong.FAULTS,
    *sparse.FAULTS,
    *stored.FAULTS,
    *texts.FAULTS,
    *vision.FAULTS,
    *mechanisms.FAULTS,
    *field_guide.FAULTS,
    *field_guide_trained.FAULTS,
)
