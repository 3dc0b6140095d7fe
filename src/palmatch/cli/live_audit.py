"""palmatch live audit: what an observer of all traffic of many live games learns about one device."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from palmatch.cli import show
from palmatch.studies.audit.wire import AuditSetup, attack_wire


def audit(
    protocol: str,
    *,
    games: int,
    real: int,
    transport: str,
    epsilon: float,
    processes: int,
    seed: int | None,
    json: Path | None,
) -> bool:
    """Attack captured traffic, print and write what was measured; tell whether the guarantee is broken."""
    found = []
    for network, count in (("memory", games), (transport, real)):
        if count:
            setup = AuditSetup(protocol, epsilon=epsilon, seed=seed)  # type: ignore[arg-type]
            with show.progress_bar("games") as progress:
                told = partial(progress, network)
                found.append(attack_wire(setup, games=count, processes=processes, network=network, progress=told))  # type: ignore[arg-type]
    if show.write_json(json, {"attacks": [asdict(one) | {"broken": one.broken} for one in found], "seed": seed}):
        for attack in found:
            show.say(f"{attack.verdict} (the best test: {attack.test}).")
        show.say("A measured ε is above the true one with a probability of at most 1 in a million.")
    return any(attack.broken for attack in found)
