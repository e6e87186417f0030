"""Memory is counted before it is spent."""

import os
from pathlib import Path

import jax


class MemoryBudgetError(MemoryError):
    """A request that does not fit into memory.

    >>> import everwide as ew, numpy as np
    >>> try:
    ...     ew.gram(ew.Dense(), np.ones((1000, 2)), memory=1000)
    ... except ew.MemoryBudgetError as fault:
    ...     print(str(fault)[:51])
    2 kernel matrices of shape (1000, 1000) in float64
    """


def available_memory() -> int:
    """Bytes that can be allocated now."""
    limits = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")] if hasattr(os, "sysconf") else []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # free pages do not count caches, which can be given back
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        limits = [int(fields["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in fields else limits
    cap, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if cap.exists() and used.exists() and cap.read_text().strip().isdigit():
        limits.append(int(cap.read_text()) - int(used.read_text()))
    return min(limits, default=1 << 62)


def budget(memory: int | None) -> int:
    """Bytes that may be used: those, or half of what is free on the host and, where it has its own, on the device."""
    if memory is not None:
        return memory
    stats = jax.local_devices()[0].memory_stats() or {}
    return min(available_memory(), stats.get("bytes_limit", 1 << 62) - stats.get("bytes_in_use", 0)) // 2


def require(needed: int, memory: int | None, what: str, way_out: str) -> None:
    """Raise unless `needed` bytes stay within the budget."""
    have = budget(memory)
    if needed > have:
        raise MemoryBudgetError(f"{what} needs {human(needed)}, {human(have)} are available. {way_out}")


def human(size: int) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size = size / 1000  # pyright: ignore[reportAssignmentType]
    raise AssertionError
