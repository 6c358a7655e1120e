"""FlashAttention: Dao et al. 2022, and the speeds of its two successors."""
