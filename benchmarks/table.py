"""Tables for people: the same text on the terminal and in README.md."""

import os
import platform
from pathlib import Path
from statistics import median

README = Path(__file__).resolve().parent / "README.md"


def table(rows: list[tuple[str, ...]]) -> str:
    """A markdown table that also reads well as it is; the first row is the heading."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    line = lambda row: "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(rows[0]), rule, *(line(row) for row in rows[1:])])


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def times(ratio: float) -> str:
    """A ratio."""
    return f"{ratio:.3g}x"


def ratio_cells(ratios: list[float]) -> tuple[str, str]:
    """The median and the spread of paired ratios."""
    return times(median(ratios)), f"{min(ratios):.3g}..{max(ratios):.3g}"


def machine() -> str:
    """Cores, processor, memory, system and load, in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{cores} cores ({_processor()}), {memory:.0f} GiB, {system}; load before the run {load:.1f}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor() or "unknown processor"
    fields = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    family = ", ".join(f"{key} {named[key]}" for key in ("cpu family", "model") if key in named)
    wide = next((name for name in ("avx512f", "avx2", "asimd") if name in named.get("flags", "").split()), "")
    return ", ".join(part for part in (named.get("model name", "unknown processor"), family, wide) if part)


def record(name: str, text: str) -> None:
    """Put `text` between the markers of that name in README.md."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    old = README.read_text()
    head, _, rest = old.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"{README.name} has no lines {begin!r} and {end!r}: put them where the record belongs.")
    README.write_text(f"{head}{begin}\n{text.strip()}\n{end}{tail}")
