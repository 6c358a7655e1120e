"""Figure 1 and the times of updates, of few tokens: what is measured, refused and left out."""

import math
from functools import partial
from typing import Any

import pytest

from common.nn.classifier import Classifier
from common.nn.long import LanguageModel
from common.nn.sparse import Full, Local, Windowed
from reproductions.longformer_bigbird.characters import CharacterStep
from reproductions.longformer_bigbird.runtime import Runtime
from reproductions.speed import Speed


def runtime(**changes: Any) -> Runtime:
    methods = {"full": "plain", "loop": "loop", "chunk": "chunked", "kernel": "triton"}
    settings: dict[str, Any] = {
        "methods": methods, "window": 16, "lengths": [512, 1024], "batch": 1, "heads": 2, "head_dim": 8, "dtype": "fp32",
        "device": "cpu", "repeats": 1, "budget": 1e9, "threads": 1,
    }  # fmt: skip
    return Runtime(**(settings | changes))


def test_memory_grows_with_the_square_of_the_length_or_with_the_length() -> None:
    """Counted bytes: the exponent between two lengths is 2 for a matrix of all pairs, 1 for windows."""
    found = runtime()(1)
    exponents = {}
    for row in ("full", "loop", "chunk"):
        at = found[row]["memory_mb"]["at"]
        exponents[row] = math.log2(at["1024"][0] / at["512"][0])
        assert len(found[row]["both_ms"]["at"]["1024"]) == len(found[row]["forward_ms"]["at"]["1024"]) == 1
    assert exponents["full"] == pytest.approx(2.0, abs=0.05)
    assert exponents["loop"] == pytest.approx(1.0, abs=0.05) and exponents["chunk"] == pytest.approx(1.0, abs=0.1)
    assert "interpreted" in found["kernel"]["both_ms"]["refused"]["512"] and not found["kernel"]["both_ms"]["at"]


def test_flex_has_no_backward_pass_here() -> None:
    cases = [(case.row, case.quantity) for case in runtime(methods={"full": "plain", "flex": "flex"}).cases()]
    assert cases == [("full", "forward_ms"), ("full", "both_ms"), ("flex", "forward_ms")]


def test_what_would_take_too_long_is_left_out_with_its_forecast() -> None:
    found = runtime(methods={"full": "plain"}, budget=0.0, lengths=[64, 128])(1)
    assert list(found["full"]["both_ms"]["at"]) == ["64"]
    assert "over the budget of 0 s" in found["full"]["both_ms"]["refused"]["128"]


def speed(lengths: tuple[int, ...] = (20, 40), **models: Any) -> Speed:
    made = {
        row: partial(
            Classifier, layers=1, d_model=8, heads=2, d_ff=8, positions="learned", max_length=max(lengths), attention=a
        )
        for row, a in models.items()
    }
    return Speed(
        models=made,
        symbols=10,
        classes=3,
        lengths=lengths,
        batch=2,
        precision="fp32",
        device="cpu",
        repeats=2,
        threads=1,
    )


def test_updates_of_every_length_and_kind() -> None:
    found = speed(full=Full(backend="reference"), local=Local(backend="chunked", block=8))(1)
    for row in ("full", "local"):
        assert {length: len(taken) for length, taken in found[row]["update_ms"]["at"].items()} == {"20": 2, "40": 2}
    assert found["full"]["parameters"]["at"] == found["local"]["parameters"]["at"]
    for turn in range(2):
        of_row = {
            row: (found[row]["update_ms"]["at"]["40"][turn], found[row]["speedup"]["at"]["40"][turn]) for row in found
        }
        assert of_row["full"][1] == 1.0
        assert of_row["local"][0] * of_row["local"][1] == pytest.approx(of_row["full"][0])


def test_memory_of_an_update_by_length() -> None:
    """Tay et al. 2020, table 2: the growth when the length doubles."""
    found = speed((1024, 2048), full=Full(backend="reference"), local=Local(backend="chunked", block=8))(1)
    growth = {}
    for row in ("full", "local"):
        at = found[row]["memory_mb"]["at"]
        growth[row] = at["2048"][0] / at["1024"][0]
    assert growth["full"] == pytest.approx(4, rel=0.1) and growth["local"] == pytest.approx(2, rel=0.1)


def test_a_character_step_counts_its_symbols_and_its_share() -> None:
    """130 symbols are 4 sequences of 32 or 2 of 64; no update is faster than the product of large matrices."""
    attention = Windowed(backend="chunked", causal=True, window=2)
    make = partial(LanguageModel, layers=1, d_model=8, heads=2, d_ff=8, attention=attention)
    step = CharacterStep(
        models={"a": make}, lengths=[32, 64], tokens=130, precision="fp32", device="cpu", repeats=2, threads=1
    )
    assert [step.sequences(length) for length in (32, 64, 1000)] == [4, 2, 1]
    [found] = step(1).values()
    for length in ("32", "64"):
        rates, shares = (found[name]["at"][length] for name in ("tokens_per_second", "share_of_peak"))
        assert len(rates) == len(shares) == 2 and all(0 < share < 100 for share in shares)


def test_models_of_unequal_size_are_refused() -> None:
    """Separate global projections are three of four matrices more."""
    windowed = Windowed(backend="chunked", window=4, global_attention="separate")
    with pytest.raises(ValueError, match="over a tenth larger"):
        speed(full=Full(backend="reference"), windowed=windowed)(1)
