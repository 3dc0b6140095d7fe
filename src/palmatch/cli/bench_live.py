"""What `palmatch bench --live` tells of the games it played."""

from __future__ import annotations

from collections.abc import Sequence

from palmatch.cli import show
from palmatch.studies.bench_live import EDGE, INTEREST, LiveRun


def tell(runs: Sequence[LiveRun]) -> None:
    """Print the figures."""
    names = ("protocol", "over", "agents", "heard", "s", "claims/s", "kB/dev", "kB/con", "loss %")
    lines = [
        (
            run.protocol,
            run.transport,
            f"{run.agents:,}",
            f"{run.accepted if run.protocol == 'report' else run.joined:,}",
            f"{run.published:.0f}",
            f"{run.claims_per_second:,.0f}",
            f"{run.bytes_per_device / 1000:.1f}",
            f"{run.kilobytes_per_connection:.0f}",
            f"{100 * run.loss:.2f}",
        )
        for run in runs
    ]
    show.show_table(names, lines, left=2)
    for run in runs:
        _tell_one(run)
    show.say(
        "s: seconds from the opening of the game to its published result, devices on the same machine. kB/dev: sent "
        "and received by a device. kB/con: memory of the hub or broker for a connection. Agents and vehicles spread "
        f"evenly, 100 of each on a square kilometre, squares of {EDGE:g} m, each agent's {INTEREST} nearest, ε = 1."
    )


def _tell_one(run: LiveRun) -> None:
    name = f"{run.protocol} over {run.transport}"
    if run.protocol == "report":
        within = f"within {run.seconds:g} s" if run.in_time else f"not all within {run.seconds:g} s"
        show.say(f"{name}: {run.accepted:,} of {run.agents:,} reports matched and published {within}.")
    else:
        show.say(f"{name}: {run.slots} slots, {run.loss / run.batch_loss:.3f} times the loss of the batch.")
    used = ", ".join(f"{party} {seconds:.1f}" for party, seconds in run.processor.items())
    show.say(f"Processor seconds: {used}; load of the machine before: {run.load:.1f}.", indent="  ")
    memory = ", ".join(f"{party} {size:,.0f}" for party, size in run.megabytes.items())
    show.say(
        f"Megabytes at most: {memory}. One core carries {run.packets_per_core:,.0f} packets a second.", indent="  "
    )
