"""python -m common.attention: which backend can do what, on which device and in which dtype, and why not."""

from dataclasses import replace

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from common.attention import (
    BACKENDS,
    Alibi,
    Blocks,
    Causal,
    Dilated,
    Full,
    Global,
    Mask,
    Packed,
    Padding,
    Random,
    Window,
    unsupported,
)
from common.attention.request import DTYPES, Request

BATCH, HEADS, TIME, SIZE = 2, 4, 64, 64

MASKS: dict[str, Mask] = {
    "Full": Full(),
    "Causal": Causal(),
    "Window": Window(16, 16),
    "Causal & Window": Causal() & Window(16, 0),
    "Dilated": Dilated(4, 4, 2),
    "Window | Global": Window(16, 16) | Global((0,)),
    "Window | Global | Random": Window(16, 16) | Global((0,)) | Random(1, 16, seed=0),
    "Blocks by head": Blocks(torch.eye(4, dtype=torch.bool).expand(1, HEADS, 4, 4), 16),
    "Padding": Padding.lengths(torch.tensor([TIME, TIME // 2]), TIME),
    "Packed": Packed((torch.arange(TIME) // 20).expand(BATCH, TIME)),
}


def table(title: str, columns: list[str], rows: dict[str, list[str | None]]) -> list[str]:
    """One line a row: "yes", or the number of the reason that follows."""
    reasons = list(dict.fromkeys(reason for cells in rows.values() for reason in cells if reason))
    first = max(map(len, (title, *rows))) + 2
    width = [max(len(name), 4) + 2 for name in columns]
    lines = [title.ljust(first) + "".join(name.ljust(w) for name, w in zip(columns, width, strict=True))]
    for name, cells in rows.items():
        shown = ["yes" if cell is None else f"[{reasons.index(cell) + 1}]" for cell in cells]
        lines.append(name.ljust(first) + "".join(cell.ljust(w) for cell, w in zip(shown, width, strict=True)))
    return [line.rstrip() for line in [*lines, *(f"[{n}] {reason}" for n, reason in enumerate(reasons, 1))]]


def request(device: str, dtype: torch.dtype, mask: Mask) -> Request:
    q = torch.empty(BATCH, HEADS, TIME, SIZE, device=device, dtype=dtype)
    return Request(q, q, q, mask, None, SIZE**-0.5, 0.0, 0, False, False)


def by_mask() -> list[str]:
    """Without gradient, bias or dropout. The column of a device that is not there says what would hold on one."""
    cells = [(device, dtype) for device in ("cpu", "cuda") for dtype in DTYPES]
    columns = [f"{device} {str(dtype).removeprefix('torch.')}" for device, dtype in cells]
    rows = {
        f"{backend}: {name}": [_reason(request(device, dtype, mask), backend) for device, dtype in cells]
        for backend in BACKENDS
        for name, mask in MASKS.items()
    }
    return table("mask", columns, rows)


def by_feature(device: str) -> list[str]:
    """Of fp32 with Causal()."""
    plain = request(device, torch.float32, Causal())
    few, narrow = (torch.empty(BATCH, heads, TIME, size, device=device) for heads, size in ((2, SIZE), (HEADS, 32)))
    bias, wants = torch.empty(1, HEADS, TIME, TIME, device=device), torch.empty_like(plain.q).requires_grad_()
    features = {
        "gradient": replace(plain, q=wants, k=wants, v=wants),
        "grouped heads": replace(plain, k=few, v=few),
        "dv other than d": replace(plain, v=narrow),
        "bias tensor": replace(plain, bias=bias),
        "gradient of it": replace(plain, bias=bias.clone().requires_grad_()),
        "bias by distance": replace(plain, bias=Alibi(torch.empty(HEADS, device=device))),
        "dropout": replace(plain, dropout_p=0.1),
        "lse": replace(plain, return_lse=True),
        "weights": replace(plain, return_weights=True),
    }
    rows = {name: [_reason(r, backend) for backend in BACKENDS] for name, r in features.items()}
    return table(f"{device}, fp32, causal", list(BACKENDS), rows)


def _reason(r: Request, backend: str) -> str | None:
    reason = unsupported(r, backend)
    return reason and f"{backend!r} {reason}"


def main() -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):  # so that no GPU is needed to ask about one
        for lines in (by_mask(), by_feature("cpu"), by_feature("cuda")):
            print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()
