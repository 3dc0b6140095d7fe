"""How many devices one hub or one broker holds: whole games on this machine, each device with its own connection.

python -m benchmarks.live_games [--agents 10000] [--transport hub,mqtt] [--protocol report] [--seconds 30] [--seed 0]

Devices share the machine with what is measured, so processor time is given for each party: what the hub, the board and
the devices took between the opening of the game and the publication of its result. Ledgers are kept in memory where the
system has a file system for that, since devices have disks of their own. Agents and vehicles spread evenly, 100 of each
on a square kilometre, each agent's 20 nearest, squares of 1000 m, ε = 1. Prints one JSON object for each game.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeAlias, cast

from palmatch.data.city import crowd
from palmatch.device.state import slot_for
from palmatch.live.board import PHASES
from palmatch.live.issuer import Issuer
from palmatch.live.keys import Signer
from palmatch.live.ops import PrometheusMetrics, run
from palmatch.live.rules import Schedule, method_of
from palmatch.live.simulation import signer_of
from palmatch.live.tokens import Identity, keep
from palmatch.methods import Settings, Workspace, prepare
from palmatch.studies.live_game import GAME, Plan, Service, outcome_of, write_places

INTEREST, EDGE, EPSILON = 20, 1000.0, 1.0

# Shares of a batch in which devices join, tables are computed and reports come in, at most: reports end with the last
# of them. The rest is for the matching.
_JOINING, _PREPARING, _REPORTING = 0.37, 0.12, 0.3
# Bids: the horizon; seconds to join and to read tables, and for each device of the machine; and by how much these may
# be prolonged.
_SLOTS, _FIRST, _JOINING_OF_DEVICE, _PREPARING_OF_DEVICE, _MOST_SHARED = 100, 5.0, 0.002, 0.002, 4.0
_DEVICES_OF_PROCESS = 5000
_IN_MEMORY = Path("/dev/shm")

Protocol: TypeAlias = Literal["report", "bids"]
Transport: TypeAlias = Literal["hub", "mqtt"]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """One game.

    Attributes
    ----------
    joined, accepted, matched:
        Devices on the roster, reports or bids that the board accepted, agents that got a resource.
    published:
        Seconds from the opening of the game to its published result.
    claims_per_second:
        Accepted reports or bids, over the time in which they could be sent.
    packets_per_core:
        Packets from and to devices, over the processor time of the hub or broker.
    kilobytes_per_connection:
        By how much the memory of the hub or broker grew while the devices connected.
    processor:
        Seconds of processor time between opening and published result, by party.
    loss, batch_loss:
        Against the full-information optimum; of this game, and of the batch with the same method and seed.
    load:
        Of the machine before the game, by other programs included.
    """

    protocol: str
    transport: str
    agents: int
    seconds: float
    slots: int
    joined: int
    accepted: int
    matched: int
    published: float
    phases: dict[str, float]
    claims_per_second: float
    packets_per_core: float
    bytes_per_device: float
    kilobytes_per_connection: float
    megabytes: dict[str, float]
    processor: dict[str, float]
    loss: float
    batch_loss: float
    load: float

    @property
    def in_time(self) -> bool:
        """Whether every device was heard, and the result was published within the batch."""
        return self.accepted >= self.agents and self.published <= self.seconds

    @property
    def content(self) -> dict[str, Any]:
        """The figures as plain data."""
        return asdict(self) | {"in_time": self.in_time, "loss_ratio": self.loss / self.batch_loss}


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time in seconds since a process began, and its memory now and at most, in megabytes."""

    processor: float
    megabytes: float
    peak: float

    @classmethod
    def of(cls, process: int) -> Usage:
        """Return what a process has used."""
        folder = Path("/proc") / str(process)
        times = (folder / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
        facts = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        memory = [int(facts[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")]
        return cls(sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), *memory)


class MeasuredService(Service):
    """A game of a crowd that has its tokens beforehand: blind ones, over HTTP, would take minutes."""

    interest = INTEREST

    def __init__(self, plan: Plan, schedule: Schedule, folder: Path, work: Path) -> None:
        # More processes than cores would take turns with the board and the hub or broker.
        self.groups = max(2, -(-plan.agents // _DEVICES_OF_PROCESS))
        places = crowd(plan.agents, seed=plan.seed or 0)
        agents, vehicles = write_places(folder, places.requests[: plan.agents], places.vehicles[: plan.agents])
        super().__init__(plan, work, agents, vehicles, lambda _what, _done, _total: None)
        self.schedule, self.metrics = schedule, PrometheusMetrics()
        self.used: dict[str, dict[str, Usage]] = {}

    def prepare(self, issuer: Issuer) -> None:
        """Give each device its token."""
        for name in self.agents.ids:
            signer = Signer.fresh() if self.plan.seed is None else signer_of(self.plan.seed, GAME, name)
            own = Identity(signer, issuer.linked_token(GAME, signer.public))
            keep(self.folder(name), issuer.key(GAME), GAME, own)

    def measure(self, stage: Literal["idle", "before", "after"]) -> None:
        """Take note of what processes have used."""
        self.used[stage] = {name: Usage.of(pid) for name, pid in self.pids.items()}


def measured(protocol: Protocol, transport: Transport, *, agents: int, seconds: float, seed: int) -> LiveRun:
    """Play a game by a protocol over a transport."""
    load = os.getloadavg()[0]
    shares = (_JOINING * seconds, _PREPARING * seconds, _REPORTING * seconds)
    times = _bids_schedule(agents, load) if protocol == "bids" else _schedule(protocol, *shares)
    memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="palmatch-bench-") as out, TemporaryDirectory(dir=memory) as work:
        plan = Plan(protocol, transport, agents, 0.0, EDGE, EPSILON, seed, Path(out))
        service = MeasuredService(plan, times, Path(out), Path(work))
        began = time.monotonic()
        run(service.run())
        return _figures(service, seconds, time.monotonic() - began, load)


def _bids_schedule(agents: int, load: float) -> Schedule:
    """Return times for so many devices on this machine; longer ones where other programs use it as well."""
    shared = min(max(1.0, load / (os.cpu_count() or 1)), _MOST_SHARED)
    joining, preparing = _FIRST + _JOINING_OF_DEVICE * agents, _FIRST + _PREPARING_OF_DEVICE * agents
    return _schedule("bids", shared * joining, shared * preparing, shared * slot_for(agents))


def _schedule(protocol: Protocol, joining: float, preparing: float, slot: float) -> Schedule:
    return Schedule(protocol, (0.0, EPSILON), joining=joining, preparing=preparing, slot=slot, slots=_SLOTS)


def _figures(service: MeasuredService, seconds: float, took: float, load: float) -> LiveRun:
    plan, played = service.plan, outcome_of(service, took)
    idle, before, after = (service.used[stage] for stage in ("idle", "before", "after"))
    used = {name: after[name].processor - before[name].processor for name in after if name in before}
    devices = sum(value for name, value in used.items() if name.startswith("devices"))
    processor = {name: value for name, value in used.items() if not name.startswith("devices")} | {"devices": devices}
    bus = "broker" if "broker" in before else "service"
    grown = before[bus].megabytes - idle[bus].megabytes
    assert isinstance(service.metrics, PrometheusMetrics)
    counted = service.metrics.value
    phases = {name: counted("palmatch_phase_seconds_sum", phase=name) for name in PHASES}
    joined, told = (
        int(sum(counted("palmatch_accepted_total", kind=kind) for kind in kinds))
        for kinds in (("join",), ("report", "bid", "claim"))
    )
    telling = phases["told"] - phases["prepared"]
    settings = Settings(epsilon=plan.epsilon)
    method = method_of(plan.protocol).name
    batch = prepare(Workspace(played.problem), method, settings=settings).play(plan.seed)
    reached = float(played.problem.true_utility_of(batch.resource_of).sum())
    return LiveRun(
        protocol=plan.protocol,
        transport=plan.transport,
        agents=plan.agents,
        seconds=seconds,
        slots=played.slots,
        joined=joined,
        accepted=told,
        matched=int((played.resource_of >= 0).sum()),
        published=phases["published"],
        phases=phases,
        claims_per_second=told / telling,
        packets_per_core=played.messages / max(used[bus], 1e-9),
        bytes_per_device=played.bytes_per_device,
        kilobytes_per_connection=1024 * grown / plan.agents,
        megabytes={name: found.peak for name, found in after.items()},
        processor=processor,
        loss=played.loss,
        batch_loss=1 - reached / played.best,
        load=load,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--transport", default="hub,mqtt")
    parser.add_argument("--protocol", default="report", help="report or bids, with commas")
    parser.add_argument("--seconds", type=float, default=30.0, help="from opening to result, by report")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    for protocol in chosen.protocol.split(","):
        for transport in chosen.transport.split(","):
            run = measured(
                cast("Protocol", protocol),
                cast("Transport", transport),
                agents=chosen.agents,
                seconds=chosen.seconds,
                seed=chosen.seed,
            )
            print(json.dumps(run.content, indent=1), flush=True)


if __name__ == "__main__":
    main()
