"""A causal layer of performer-pytorch beside ours, as many positive features for both."""

import torch

from common.nn.linear import Favor
from reproductions.peers.layers import HEAD_DIM, HEADS, SIZE, THREADS, Attend, compare

FEATURES, REPEATS = 256, 3


def theirs() -> Attend:
    from performer_pytorch import SelfAttention  # type: ignore[import-not-found]

    return SelfAttention(dim=SIZE, heads=HEADS, dim_head=HEAD_DIM, causal=True, nb_features=FEATURES)


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    ours = Favor(causal=True, features=FEATURES)(SIZE, HEADS, 0, 1)
    layers = {"performer-pytorch": (theirs(), False), "ours, fp32": (ours, False)}
    compare(layers, f"causal, {FEATURES} features", REPEATS)
