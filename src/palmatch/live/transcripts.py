"""What a board publishes of a matching, region by region: reports, prices, and who got what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from palmatch.live import messages as m
from palmatch.live.packing import pack
from palmatch.live.terms import Outcome


def transcripts(
    method: str, joins: Mapping[bytes, m.Join], listed: Mapping[str, Sequence[str]], outcome: Outcome
) -> Iterator[tuple[str, m.Transcript]]:
    """Return each region's transcript: its agents, and those of other regions that hold what its table lists."""
    agents: dict[str, list[bytes]] = {}
    for tag, join in joins.items():
        agents.setdefault(join.region, []).append(tag)
    got: dict[bytes, list[str]] = {}
    for name, tag in sorted(outcome.holders.items()):
        got.setdefault(tag, []).append(name)
    number = {region: place for place, region in enumerate(sorted(agents))}
    for region in sorted(agents):
        names = (name for name in listed[region] if name in outcome.holders)
        tags = sorted({*agents[region], *(outcome.holders[name] for name in names)})
        # A line for each unit, and one for an agent without any.
        lines = [(tag, name) for tag in tags for name in got.get(tag, [None])]
        yield region, _transcript(method, joins, listed[region], lines, number, outcome)


def _transcript(
    method: str,
    joins: Mapping[bytes, m.Join],
    listed: Sequence[str],
    lines: Sequence[tuple[bytes, str | None]],
    regions: Mapping[str, int],
    outcome: Outcome,
) -> m.Transcript:
    names = tuple(dict.fromkeys((*listed, *(name for _, name in lines if name is not None))))
    place = {name: number for number, name in enumerate(names)}
    own = [joins[tag] for tag, _ in lines]
    reported = [outcome.reports.get(tag) for tag, _ in lines]
    channels = sorted({found[0] for found in reported if found is not None})
    number_of = {channel: number for number, channel in enumerate(channels)}
    return m.Transcript(
        method=method,
        resources=names,
        tags=b"".join(tag for tag, _ in lines),
        region=pack("I", [regions[join.region] for join in own]),
        epsilon_class=bytes(join.epsilon_class for join in own),
        channels=tuple(channels),
        channel=pack("i", [-1 if found is None else number_of[found[0]] for found in reported]),
        reports=pack("i", [-1 if found is None else found[1] for found in reported]),
        assigned=pack("i", [-1 if name is None else place[name] for _, name in lines]),
        prices=pack("d", [outcome.prices.get(name, 0.0) for name in names]),
        demands=m.packed_demands([m.demand_of(join) for join in own]),
    )
