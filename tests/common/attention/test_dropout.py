"""Philox 4x32-10 against the known answers of Salmon et al. (2011), and the uniform numbers made of it."""

import pytest
import torch

from common.attention.dropout import keep, philox, uniform


def counter(*words: int) -> list[torch.Tensor]:
    return [torch.tensor([word]) for word in words]


def test_the_known_answer_of_counter_and_key_0():
    """Their first vector: 6627e8d5 e169c58d bc57ac4c 9b00dbd8, of which ours is the first word."""
    assert philox(0, *counter(0, 0, 0)).item() == 0x6627E8D5


def by_integers(key: tuple[int, int], words: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Section 3.2 and figure 4 of the paper, with Python's integers."""
    low = (1 << 32) - 1
    a, b, c, d = words
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k0, second & low, (first >> 32) ^ d ^ k1, first & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return a, b, c, d


def test_the_independent_computation_gives_all_known_answers():
    """The three vectors of the authors' kat_vectors for philox4x32-10."""
    low = 0xFFFFFFFF
    assert by_integers((0, 0), (0, 0, 0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert by_integers((low, low), (low, low, low, low)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    digits_of_pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert by_integers((0xA4093822, 0x299F31D0), digits_of_pi) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


@pytest.mark.parametrize("seed", [0, 1, 12345, (1 << 32) + 5, (1 << 62) + 77, (1 << 63) - 1])
def test_words_against_the_independent_computation(seed: int):
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (127, 63, 31), (0xFFFFFFFF,) * 3, (65535, 65536, 7)]
    words = philox(seed, *(torch.tensor(part) for part in zip(*places, strict=True))).tolist()
    expected = [by_integers((seed & 0xFFFFFFFF, seed >> 32), (*place, 0))[0] for place in places]
    assert words == expected


def test_uniform_numbers_of_words():
    """0 and the highest bit alone: the smallest and nearly the largest; half way between; never 1."""
    words = torch.tensor([0, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
    got = uniform(words)
    assert got.dtype == torch.float32
    assert got.tolist() == pytest.approx([0.0, 0.5, 1.0, 1.0, 0.0], abs=1e-6) and bool((got < 1).all())


def test_the_numbers_are_uniform():
    """65536 numbers in 16 equal bins: chi-square of 15 degrees of freedom, below 45 but once in 10^4 times; mean 1/2."""
    grid = torch.arange(256)
    numbers = uniform(philox(3, grid[:, None].expand(256, 256), grid.expand(256, 256), torch.zeros(256, 256).long()))
    counts = torch.histc(numbers, 16, 0, 1)
    assert float(((counts - 4096) ** 2 / 4096).sum()) < 45
    assert abs(float(numbers.mean()) - 0.5) < 5 / (12 * 65536) ** 0.5


def test_neighbours_are_not_alike():
    """Correlation along keys, queries, heads and seeds: below 5 / sqrt(n)."""
    i, j, heads = torch.arange(64)[:, None], torch.arange(64), torch.arange(16)[:, None, None]
    first = keep(9, 0.5, heads, i, j).float() - 0.5
    for other in (first.roll(1, 0), first.roll(1, 1), first.roll(1, 2), keep(10, 0.5, heads, i, j).float() - 0.5):
        assert abs(float((first * other).mean()) * 4) < 5 / first.numel() ** 0.5


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_share_of_p_is_dropped(p: float):
    kept = keep(5, p, torch.arange(4)[:, None, None], torch.arange(100)[:, None], torch.arange(100)).float()
    assert abs(float(kept.mean()) - (1 - p)) < 5 * (p * (1 - p) / kept.numel()) ** 0.5


def test_what_is_kept_depends_on_the_place_alone():
    i, j = torch.arange(40)[:, None], torch.arange(50)
    whole = keep(5, 0.3, torch.arange(6)[:, None, None], i, j)
    assert torch.equal(keep(5, 0.3, torch.tensor(4), i[10:20], j[30:]), whole[4, 10:20, 30:])
    assert not torch.equal(whole[4], whole[5]) and not torch.equal(whole[0, :, :40], whole[0, :, :40].t())
