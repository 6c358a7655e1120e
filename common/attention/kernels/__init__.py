"""Triton kernels and what launches them. Importing this package needs triton; nothing here is a public interface.

With TRITON_INTERPRET=1, set before this package is first imported, kernels run on the CPU in Triton's interpreter: slow,
exact, for tests. What is decorated that way can't be compiled in the same process.
"""

import triton

INTERPRETED: bool = triton.knobs.runtime.interpret  # type: ignore[attr-defined]
"""Whether the kernels of this process are interpreted: decided when they are decorated."""

if INTERPRETED:
    from common.attention.kernels import interpreter

    interpreter.install()
