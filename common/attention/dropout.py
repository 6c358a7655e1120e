"""Dropout of attention weights by a counter-based generator: any backend, blocking or device drops the same weights.

Philox 4x32-10 (Salmon et al. 2011) with the counter (key, query, batch * heads + head, 0): what is dropped at a place
depends on the seed and the place alone, so that a backward pass can draw it again instead of storing it.
"""

import torch
from torch import Tensor

LOW = 0xFFFFFFFF
ROUND = (0xD2511F53, 0xCD9E8D57)
STEP = (0x9E3779B9, 0xBB67AE85)


def keep(seed: int, p: float, heads: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """bool: True where a weight is kept. heads: batch * heads + head; i: query; j: key; int64, of shapes that broadcast."""
    counter = [part.expand(torch.broadcast_shapes(heads.shape, i.shape, j.shape)) for part in (j, i, heads)]
    return uniform(philox(seed, *counter)) >= p


def philox(seed: int, c0: Tensor, c1: Tensor, c2: Tensor) -> Tensor:
    """The first of the four words, as int64 from 0 to 2^32 - 1. Counters: int64 below 2^32."""
    a, b, c, d = c0, c1, c2, torch.zeros_like(c0)
    k0, k1 = seed & LOW, (seed >> 32) & LOW
    for _ in range(10):
        first, second = ROUND[0] * a, ROUND[1] * c  # modulo 2^64: the bits of the unsigned products
        a, b, c, d = (
            ((second >> 32) & LOW) ^ b ^ k0,
            second & LOW,
            ((first >> 32) & LOW) ^ d ^ k1,
            first & LOW,
        )
        k0, k1 = (k0 + STEP[0]) & LOW, (k1 + STEP[1]) & LOW
    return a


def uniform(word: Tensor) -> Tensor:
    """fp32 in [0, 1), as Triton makes it of a word: its 31 bits without the sign."""
    signed = torch.where(word >= 1 << 31, LOW - word, word)
    return signed.float() * 4.6566127342e-10
