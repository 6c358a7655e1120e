"""FlashAttention over lists of blocks in Triton: forward and backward without an Lq x Lk tensor, the same bits each time.

Reads of a mask only its block lists and of a bias by distance only its vector. The gradient of a bias given as a tensor
takes one (B, H, Lq, Lk) tensor, and only if it is asked for.
"""

from importlib.util import find_spec

import torch

from common.attention.positions import RelativeBias
from common.attention.request import Attended, Request

MAX_HEAD_DIM = 256


def unsupported(request: Request) -> str | None:
    """Reasons that lie in the request come before those of the machine."""
    size = max(request.q.shape[3], request.v.shape[3])
    if size > MAX_HEAD_DIM:
        return f"takes head_dims up to {MAX_HEAD_DIM}, not {size}"
    if request.return_weights:
        return "never holds the weights, so has no return_weights"
    return no_machine(request.q.device, request.q.dtype)


def no_machine(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why kernels can't run on a device for inputs of a dtype, to follow "backend 'triton' ", whatever is computed."""
    if find_spec("triton") is None:
        return "needs triton, which is not installed (it exists for Linux alone)"
    from common.attention.kernels import INTERPRETED

    if INTERPRETED:
        return None
    if dtype == torch.float64:
        return "computes fp64 in Triton's interpreter alone"
    return _no_gpu(device)


def _no_gpu(device: torch.device) -> str | None:
    """Why a device can't run compiled kernels."""
    if device.type != "cuda":
        return (
            f"runs on a GPU, not on {device.type} (there only in Triton's interpreter: TRITON_INTERPRET=1, for tests)"
        )
    if torch.version.hip:
        return "is made for NVIDIA GPUs"
    if not torch.cuda.is_available():  # someone asks what would hold on one
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return f"needs a GPU of compute capability 8.0 or more, not {major}.{minor}" if major < 8 else None


def attend(r: Request) -> Attended:
    from common.attention.kernels.autograd import flash
    from common.attention.kernels.launch import Problem

    _, _, lq, lk = r.shape
    bias = r.bias
    if isinstance(bias, RelativeBias):
        bias = bias.vector(lq, lk, r.q.device) if lq and lk else None
    output, lse = flash(Problem(r.q, r.k, r.v, r.mask, bias, r.scale, r.dropout_p, r.seed))
    return Attended(output, lse if r.return_lse else None)
