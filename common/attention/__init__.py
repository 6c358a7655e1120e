"""Attention as functions of tensors: scores, and what becomes of them."""
