"""Precision by the processor's flags, and where a configuration takes it from."""

from pathlib import Path

import pytest

from reproductions import cpu
from reproductions.compose import job


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16\n", "bf16-mixed"),
        ("flags\t\t: fpu avx2 amx_bf16 amx_tile\n", "bf16-mixed"),
        ("processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n", "bf16-mixed"),
        ("flags\t\t: fpu avx avx2 avx512f\n", "32-true"),
        ("model name\t: avx512_bf16\n", "32-true"),
    ],
)
def test_bfloat16_is_for_processors_that_have_it(tmp_path: Path, text: str, precision: str) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu.training_precision(tmp_path / "cpuinfo") == precision


def test_a_system_that_tells_nothing_trains_in_fp32(tmp_path: Path) -> None:
    assert cpu.training_precision(tmp_path / "none") == "32-true"


def test_it_stands_in_the_configuration_of_a_row_and_can_be_overridden() -> None:
    row = ("experiment=bahdanau/rnnsearch_50", "scale=small")
    assert job(row, None).config["trainer"]["precision"] == cpu.training_precision()
    assert job((*row, "trainer.precision=16-mixed"), None).config["trainer"]["precision"] == "16-mixed"
