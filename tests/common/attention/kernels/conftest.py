"""Kernels run in Triton's interpreter here. The variable is read when their package is imported."""

import os
import sys

import pytest

os.environ["TRITON_INTERPRET"] = "1"
if "common.attention.kernels" in sys.modules and not sys.modules["common.attention.kernels"].INTERPRETED:
    raise pytest.UsageError("kernels were imported to be compiled: test what is interpreted in a process of its own")
