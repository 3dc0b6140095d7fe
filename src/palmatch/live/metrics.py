"""Counters for operators, in Prometheus' text format. Labels are roles, kinds and reasons: never a region or a tag."""

from __future__ import annotations

from collections import defaultdict

_HELP = {
    "palmatch_connections": ("gauge", "Open connections by role."),
    "palmatch_received_total": ("counter", "Packets received by kind of message."),
    "palmatch_received_bytes_total": ("counter", "Bytes of packets received."),
    "palmatch_delivered_total": ("counter", "Packets delivered to subscribers."),
    "palmatch_delivered_bytes_total": ("counter", "Bytes of packets delivered."),
    "palmatch_refused_total": ("counter", "Refused requests by reason."),
    "palmatch_games_total": ("counter", "Games that ended, by outcome."),
    "palmatch_agents_matched_total": ("counter", "Agents that got a resource."),
    "palmatch_accepted_total": ("counter", "Joins, reports, bids and claims that the board accepted, by kind."),
    "palmatch_phase_seconds": ("gauge", "When each phase of the last game ended, in seconds after its opening."),
}


class Metrics:
    """Numbers by name and labels."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, tuple[tuple[str, str], ...]], float] = defaultdict(float)

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Add to a number; only the names that are listed here exist."""
        if name not in _HELP:
            raise KeyError(name)
        self._values[name, tuple(sorted(labels.items()))] += amount

    def set(self, name: str, amount: float, **labels: str) -> None:
        """Set a number."""
        self.add(name, amount - self.value(name, **labels), **labels)

    def value(self, name: str, **labels: str) -> float:
        """Return a number."""
        return self._values.get((name, tuple(sorted(labels.items()))), 0.0)

    def text(self) -> str:
        """Return all numbers in Prometheus' text format, version 0.0.4."""
        lines = []
        for name, (kind, sentence) in _HELP.items():
            lines += [f"# HELP {name} {sentence}", f"# TYPE {name} {kind}"]
            for (found, labels), value in sorted(self._values.items()):
                if found == name:
                    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
                    lines.append(f"{name}{{{inner}}} {value:g}" if inner else f"{name} {value:g}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
