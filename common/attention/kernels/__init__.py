"""Triton kernels and what launches them. Importing this package needs triton; nothing here is a public interface.

    flash*        softmax attention and its gradients, over lists of blocks
    additive      additive attention and its gradients
    linear*       linear attention and its gradients, by chunks
    decode*       one or a few queries against a cache, contiguous or in pages, whose keys are split among programs
    rotary        rotary embedding

With TRITON_INTERPRET=1, set before this package is first imported, kernels run on the CPU in Triton's interpreter: slow,
exact, for tests. What is decorated that way can't be compiled in the same process.
"""

import triton

INTERPRETED: bool = triton.knobs.runtime.interpret  # type: ignore[attr-defined]
"""Whether the kernels of this process are interpreted: decided when they are decorated."""

if INTERPRETED:
    from common.attention.kernels import interpreter

    interpreter.install()
