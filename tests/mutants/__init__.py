"""Faults planted in the kernels, each of which the tests must notice: `python -m tests.mutants`, or only those
whose name or file holds a word: `python -m tests.mutants kernels/ causal`.

A fault is a line of `faults/`: a file, a text in it, what stands there instead, and the tests that are to fail. They run in
a copy of the tree, which itself is never changed.
"""
