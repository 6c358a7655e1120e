"""What a bench ran on: device, clocks, versions, and which of our sources."""

import hashlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "triton", "numpy", "flash_attn")
GPU_CLOCKS = {
    "clocks.sm": "sm_mhz",
    "clocks.max.sm": "sm_max_mhz",
    "clocks.mem": "memory_mhz",
    "clocks.max.mem": "memory_max_mhz",
    "power.draw": "power_watt",
    "power.limit": "power_limit_watt",
    "temperature.gpu": "temperature_celsius",
}


def machine(device: str) -> dict[str, str | int | float | None]:
    """Name and sizes of the device; bytes and counts."""
    if device.startswith("cuda"):
        gpu = torch.cuda.get_device_properties(device)
        return {
            "device": gpu.name,
            "capability": f"{gpu.major}.{gpu.minor}",
            "multiprocessors": gpu.multi_processor_count,
            "memory_bytes": gpu.total_memory,
            "l2_bytes": gpu.L2_cache_size,
            "driver": _nvidia_smi(device, ["driver_version"]).get("driver_version"),
            "float32_products": torch.get_float32_matmul_precision(),
            "system": platform.platform(),
        }
    name = re.search(r"model name\s*: (.*)", _text("/proc/cpuinfo"))
    return {
        "device": name[1] if name else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": _meminfo("MemTotal"),
        "float32_products": torch.get_float32_matmul_precision(),
        "system": platform.platform(),
    }


def clocks(device: str) -> dict[str, float]:
    """As they are now: MHz, W, degrees C; what the machine does not tell is left out."""
    if device.startswith("cuda"):
        told = _nvidia_smi(device, list(GPU_CLOCKS))
        return {GPU_CLOCKS[key]: float(value) for key, value in told.items() if re.fullmatch(r"[\d.]+", value)}
    now = [float(mhz) for mhz in re.findall(r"cpu MHz\s*: ([\d.]+)", _text("/proc/cpuinfo"))]
    return {"cpu_mean_mhz": sum(now) / len(now)} if now else {}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    toolkit = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    return found | {name: number for name, number in toolkit.items() if number}


def source() -> str:
    """sha256 over the attention core and the bench: path and text of each file."""
    total = hashlib.sha256()
    for part in ("common/attention", "common/bench"):
        for file in sorted((ROOT / part).rglob("*.py")):
            total.update(f"{file.relative_to(ROOT).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return total.hexdigest()


def commit() -> str | None:
    """The checkout's commit; None outside one."""
    return _run(["git", "-C", str(ROOT), "rev-parse", "HEAD"]) or None


@contextmanager
def memory_limit(device: str) -> Iterator[None]:
    """On a CPU under Linux: an allocation beyond what is free now fails, instead of the system ending some process."""
    free, mine = _available(), re.search(r"VmSize:\s*(\d+) kB", _text("/proc/self/status"))
    if device != "cpu" or free is None or mine is None or sys.platform != "linux":
        yield
        return
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(mine[1]) * 1024 + int(0.9 * free), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _available() -> int | None:
    """Bytes that can still be taken: of the system, and of the control group that a container is."""
    group = Path("/sys/fs/cgroup")
    most, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    free = _meminfo("MemAvailable")
    if free is not None and most.isdecimal() and used.isdecimal():
        return min(free, int(most) - int(used))
    return free


def _meminfo(key: str) -> int | None:
    found = re.search(rf"{key}:\s*(\d+) kB", _text("/proc/meminfo"))
    return int(found[1]) * 1024 if found else None


def _nvidia_smi(device: str, keys: list[str]) -> dict[str, str]:
    which = "GPU-" + str(torch.cuda.get_device_properties(device).uuid).removeprefix("GPU-")
    line = _run(["nvidia-smi", "-i", which, f"--query-gpu={','.join(keys)}", "--format=csv,noheader,nounits"])
    values = [value.strip() for value in line.split(",")]
    return dict(zip(keys, values, strict=True)) if line and len(values) == len(keys) else {}


def _run(command: list[str]) -> str:
    """What a command prints; nothing where there is no such command or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _text(path: Path | str) -> str:
    """Nothing where there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""
