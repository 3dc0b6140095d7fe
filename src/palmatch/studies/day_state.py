"""Everything that is under way at one moment of a day: vehicles, agents that wait, their budgets and stored reports.

The rules by which vehicles move and agents give up are here, and are functions of public things only:

- A vehicle that is matched drives to the agent. This leg is timed to the farthest point of the agent's square and
  rounded up to whole batches, so that it does not tell where in the square the agent is.
- It then drives to the destination's square, timed between public points, and is free at a public point there.
- Where that square is not served, or not known, it drives on to its stand, the public point where it began the day.
- An agent that got no vehicle waits and takes part in the next batch, and gives up after a public time.

The state itself holds true places and is not to be published. It knows nothing of how any agent is matched.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import polars as pl

from palmatch.device.budget import UNIT_BITS
from palmatch.problem import FloatArray, IntArray
from palmatch.studies.day_area import Area, metres_between, public_draws

# A remainder of a budget that is smaller than this is not spent on a report.
_LEAST_SHARE = 1 << (UNIT_BITS - 20)


@dataclass(frozen=True, slots=True, eq=False)
class Fleet:
    """Vehicles: `place` is where each stands, or where it will stand at `free_at` seconds after midnight."""

    place: FloatArray
    free_at: FloatArray
    stand: FloatArray

    def free(self, now: float) -> IntArray:
        """Return which vehicles stand free."""
        return np.flatnonzero(self.free_at <= now)


@dataclass(frozen=True, slots=True, eq=False)
class Agents:
    """Agents that wait: their number, request, budget of the day and stored report.

    Attributes
    ----------
    place:
        Where each is: private to it.
    square, to:
        The squares of its place and of its destination (NaN where not known): public.
    left:
        What each may still spend, in units of the ledger.
    plays, paid:
        In how many batches each took part, and was charged.
    channel, report:
        The stored report and the number, in `State.channels`, of the channel that it was drawn from; -1 for none.
    """

    number: IntArray
    asked: FloatArray
    place: FloatArray
    square: FloatArray
    to: FloatArray
    left: IntArray
    plays: IntArray
    paid: IntArray
    channel: IntArray
    report: IntArray

    def __len__(self) -> int:
        return len(self.number)

    def only(self, chosen: IntArray) -> Self:
        """Return some of them."""
        return replace(self, **{part.name: getattr(self, part.name)[chosen] for part in fields(self)})

    def and_(self, others: Self) -> Self:
        """Return them and others after them."""
        both = {
            part.name: np.concatenate((getattr(self, part.name), getattr(others, part.name))) for part in fields(self)
        }
        return replace(self, **both)


@dataclass(frozen=True, slots=True, eq=False)
class StoredChannel:
    """The channel of a stored report: the cell of each possible type, and the chances of each report; public."""

    cell_of: IntArray
    chances: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a day needs to go on: the next batch, how many have asked, vehicles, waiting agents, their channels."""

    batch: int
    asked: int
    fleet: Fleet
    agents: Agents
    channels: tuple[StoredChannel, ...] = ()

    def packed(self) -> bytes:
        """Return everything as bytes."""
        parts: dict[str, Any] = {"numbers": np.array([self.batch, self.asked, len(self.channels)])}
        records: list[tuple[str, Any]] = [("fleet", self.fleet), ("agents", self.agents)]
        records += [(f"channel{number}", channel) for number, channel in enumerate(self.channels)]
        for name, record in records:
            parts |= {f"{name}.{part.name}": getattr(record, part.name) for part in fields(record)}
        return packed_arrays(parts)

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """Return what `packed` gave."""
        parts = unpacked_arrays(packed)

        def record(kind: Any, name: str) -> Any:
            return kind(**{part.name: parts[f"{name}.{part.name}"] for part in fields(kind)})

        batch, asked, channels = parts["numbers"].tolist()
        stored = tuple(record(StoredChannel, f"channel{number}") for number in range(channels))
        return cls(batch, asked, record(Fleet, "fleet"), record(Agents, "agents"), stored)


def packed_arrays(parts: dict[str, Any]) -> bytes:
    """Return arrays as bytes."""
    packed = io.BytesIO()
    np.savez(packed, **parts)
    return packed.getvalue()


def unpacked_arrays(packed: bytes) -> dict[str, Any]:
    """Return what `packed_arrays` was given."""
    with np.load(io.BytesIO(packed)) as parts:
        return dict(parts.items())


def fresh(stands: FloatArray, *, batch: int, now: float) -> State:
    """Return the beginning: every vehicle free at its stand, and no agent waiting."""
    none = np.zeros(0)
    whole, pairs = none.astype(np.int64), none.reshape(0, 2)
    agents = Agents(whole, none, pairs, pairs, pairs, whole, whole, whole, whole, whole)
    return State(batch, 0, Fleet(stands.copy(), np.full(len(stands), now), stands.copy()), agents)


def arrivals(trips: pl.DataFrame, first: int, area: Area, *, units: int) -> Agents:
    """Return those who ask now, numbered from `first` on, each with the day's budget in units."""
    count = len(trips)
    place = trips.select("latitude", "longitude").to_numpy()
    none, nothing = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    return Agents(
        number=np.arange(first, first + count),
        asked=trips["asked"].to_numpy(),
        place=place,
        square=area.squares(place),
        to=area.squares(trips.select("to_latitude", "to_longitude").to_numpy()),
        left=np.full(count, units),
        plays=nothing,
        paid=nothing,
        channel=none,
        report=none,
    )


def offers(agents: Agents, *, units: int, memoises: bool) -> IntArray:
    """Return what each plays this batch with, in units: a batch's share, or what is left of the day.

    Where reports are memoised, an agent that has given one gives no second one.
    """
    offer = np.minimum(agents.left, units)
    done = (agents.channel >= 0) if memoises else np.zeros(len(agents), dtype=np.bool_)
    return np.where((offer < _LEAST_SHARE) | done, 0, offer)


def send(
    fleet: Fleet,
    vehicles: IntArray,
    square: FloatArray,
    to: FloatArray,
    area: Area,
    *,
    batch: int,
    batch_seconds: float,
    speed: float,
) -> tuple[Fleet, FloatArray]:
    """Send vehicles to agents in these squares, and on to these; return the fleet, and when each agent is picked up.

    An agent is picked up at that public time at the latest; the vehicle leaves with it then. No place of an agent is
    given to this function.
    """
    now = (batch + 1) * batch_seconds
    reach = area.farthest(fleet.place[vehicles], square) / speed
    leaves = now + np.ceil(reach / batch_seconds) * batch_seconds
    known, served = np.isfinite(to[:, 0]), area.serves(to)
    last = np.where(known[:, None], area.stands(to, public_draws(vehicles, batch)), area.centres(square))
    ride = np.where(known, area.ride(square, last), 0.0) / speed
    home = np.where(served, 0.0, metres_between(last, fleet.stand[vehicles]) / speed)
    place, free_at = fleet.place.copy(), fleet.free_at.copy()
    place[vehicles] = np.where(served[:, None], last, fleet.stand[vehicles])
    free_at[vehicles] = leaves + ride + home
    return replace(fleet, place=place, free_at=free_at), leaves


def kept(state: State) -> State:
    """Return the state without the channels of agents that no longer wait."""
    used, index = np.unique(state.agents.channel, return_inverse=True)
    # -1, which stands for no report, comes first where it occurs.
    none = int(len(used) > 0 and used[0] < 0)
    channels = tuple(state.channels[number] for number in used[none:].tolist())
    return replace(state, agents=replace(state.agents, channel=index.astype(np.int64) - none), channels=channels)


def one_time_ids(numbers: Sequence[int] | IntArray, *, kind: str, key: bytes) -> list[str]:
    """Return ids for one batch, which cannot be linked to those of another batch without the batch's key."""
    keyed = blake2b(kind.encode(), key=key, digest_size=16).digest()
    return [blake2b(int(number).to_bytes(8, "little"), key=keyed, digest_size=8).hexdigest() for number in numbers]
