"""What processes use: processor time and memory as the operating system counts them, and how many files they may open.

Read from /proc, so it is there on Linux; elsewhere nothing is known. Nothing here knows what the processes do.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from palmatch.errors import InputError


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time in seconds since a process began, and its memory now and at most, in megabytes."""

    processor: float
    megabytes: float
    peak: float


def usage_of(process: int) -> Usage | None:
    """Return what a process has used, or None where that is not known."""
    folder = Path("/proc") / str(process)
    try:
        times = (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
        facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
    except OSError:
        return None
    memory = [int(facts[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM") if name in facts]
    if len(memory) != 2:
        return None
    return Usage(sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), *memory)


def allow_files(count: int = 0) -> None:
    """Raise this process's limit of open files as far as the system allows; refuse if that is not enough.

    Its children get the limit too. A limit of 1,024, as is usual, would be a limit of a thousand devices.
    """
    if os.name != "posix":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard):
        return
    if count > hard:
        raise InputError(
            f"So many connections need {count:,} open files, and this system allows {hard:,} (`ulimit -Hn`): "
            "raise its limit, or ask for fewer agents."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
