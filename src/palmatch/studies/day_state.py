"""Everything that is in the air at one moment of a day: vehicles, people who wait, and what they may still spend.

The rules by which vehicles move and people give up are here, and they are public:

- A vehicle that is matched drives to the person, then where the person wants to go, and is free there.
- Where that is off the island, or not on record, it drives on to its stand, the place where it began the day: never to
  a place that would tell where somebody was.
- A person who got no vehicle waits and plays again in the next batch, and gives up after a public time.

What is in here fits on one page however long the day is. It knows nothing of how anybody is matched.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Self

import numpy as np
import polars as pl

from palmatch.device.ledger import UNIT_BITS
from palmatch.problem import FloatArray, IntArray
from palmatch.studies.day_trips import metres_between, on_the_island

# What is left of a budget below this is not worth a report.
_CRUMB = 1 << (UNIT_BITS - 20)


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
class People:
    """Those who wait: who they are inside the simulation, their trip, and their budget of the day.

    `left` is what each may still spend, in units of the ledger; `plays` how often each has played, and `paid` how often
    it paid for that.
    """

    person: IntArray
    asked: FloatArray
    place: FloatArray
    to: FloatArray
    seconds: FloatArray
    left: IntArray
    plays: IntArray
    paid: IntArray

    def __len__(self) -> int:
        return len(self.person)

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
class State:
    """What a day needs to go on: the next batch, the vehicles, the people who wait, and how many have asked so far."""

    batch: int
    asked: int
    fleet: Fleet
    people: People

    def packed(self) -> bytes:
        """Return everything as bytes."""
        parts: dict[str, Any] = {"numbers": np.array([self.batch, self.asked])}
        for name, record in (("fleet", self.fleet), ("people", self.people)):
            parts |= {f"{name}.{part.name}": getattr(record, part.name) for part in fields(record)}
        packed = io.BytesIO()
        np.savez(packed, **parts)
        return packed.getvalue()

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """Return what `packed` gave."""
        with np.load(io.BytesIO(packed)) as parts:
            batch, asked = parts["numbers"].tolist()
            fleet = Fleet(**{part.name: parts[f"fleet.{part.name}"] for part in fields(Fleet)})
            people = People(**{part.name: parts[f"people.{part.name}"] for part in fields(People)})
        return cls(batch, asked, fleet, people)


def fresh(places: FloatArray, *, batch: int, now: float) -> State:
    """Return the beginning: everybody's vehicle free at its stand, and nobody waiting."""
    none = np.zeros(0)
    whole, pairs = none.astype(np.int64), none.reshape(0, 2)
    people = People(whole, none, pairs, pairs, none, whole, whole, whole)
    return State(batch, 0, Fleet(places.copy(), np.full(len(places), now), places.copy()), people)


def arrivals(trips: pl.DataFrame, first: int, *, units: int) -> People:
    """Return those who ask now, numbered from `first` on, each with the day's budget in units."""
    count = len(trips)
    return People(
        person=np.arange(first, first + count),
        asked=trips["asked"].to_numpy(),
        place=trips.select("latitude", "longitude").to_numpy(),
        to=trips.select("to_latitude", "to_longitude").to_numpy(),
        seconds=trips["seconds"].to_numpy(),
        left=np.full(count, units),
        plays=np.zeros(count, dtype=np.int64),
        paid=np.zeros(count, dtype=np.int64),
    )


def offers(people: People, *, units: int) -> IntArray:
    """Return what each plays this batch with, in units: a batch's share, or what is left of the day."""
    offer = np.minimum(people.left, units)
    return np.where(offer < _CRUMB, 0, offer)


def send(
    fleet: Fleet, vehicles: IntArray, people: People, *, now: float, speed: float, made_up: bool
) -> tuple[Fleet, FloatArray]:
    """Send a vehicle to each of these people; return the fleet, and when each person is picked up."""
    picked = now + metres_between(fleet.place[vehicles], people.place) / speed
    stays = on_the_island(people.to, made_up=made_up)
    last = np.where(np.isnan(people.to), people.place, people.to)
    home = np.where(stays, 0.0, metres_between(last, fleet.stand[vehicles]) / speed)
    place, free_at = fleet.place.copy(), fleet.free_at.copy()
    place[vehicles] = np.where(stays[:, None], people.to, fleet.stand[vehicles])
    free_at[vehicles] = picked + people.seconds + home
    return replace(fleet, place=place, free_at=free_at), picked


def one_time_ids(numbers: Sequence[int] | IntArray, *, kind: str, batch: int, seed: int) -> list[str]:
    """Return ids for one batch, which only who knows the seed can link to those of another batch."""
    key = blake2b(f"{seed} {kind} {batch}".encode(), digest_size=16).digest()
    return [blake2b(int(number).to_bytes(8, "little"), key=key, digest_size=8).hexdigest() for number in numbers]
