"""A simulated live game is the batch: the same matching and the same charges, by every protocol on every transport."""

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import palmatch as pm
from live.buses import FLEET, FLEET_KEYS, KEYS, TRUST, MemoryBus
from live.examples import GRID, PARTITION
from live.listening import clock
from palmatch.device import messages as m
from palmatch.device.grid import locate
from palmatch.device.ledger import Ledger, units_of
from palmatch.device.rounds import RoundsMachine
from palmatch.device.state import BidMachine, Owner, ReportMachine
from palmatch.domains.mobility import Points
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.journal import Journal
from palmatch.live.listing import PublicSetup
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Schedule, method_of, opening_of
from palmatch.live.session import DeviceSession
from palmatch.live.simulation import Simulation, draw_of, signer_of
from palmatch.live.tokens import identity
from palmatch.live.topics import Topic
from palmatch.methods import Settings

GAME, SEED = "morning", 7
MACHINES: dict[str, Any] = {"report": ReportMachine, "bids": BidMachine, "rounds": RoundsMachine}


@dataclass
class Town:
    """Some agents and fewer resources of the synthetic city, in two ε classes."""

    agents: int
    resources: int
    most: float

    def __post_init__(self):
        batch = pm.data.city.batch(8.0, seed=3)
        self.positions = np.asarray(batch.requests)[: self.agents]
        places = np.asarray(batch.vehicles)[: self.resources].copy()
        # Two seats of one resource.
        places[1] = places[0]
        self.ids = [f"a{number}" for number in range(self.agents)]
        self.epsilon = np.array([0.5 if number % 4 == 3 else self.most for number in range(self.agents)])
        self.vehicles = Points("", FLEET[: self.resources], places[:, 0], places[:, 1], None, None, ())

    def batch(self, protocol):
        requests = Points("", tuple(self.ids), *self.positions.T, None, None, ())
        problem = pm.mobility.problem(
            requests,
            self.vehicles,
            edge=PARTITION.edge,
            spacing=PARTITION.spacing,
            origin=PARTITION.origin,
            epsilon=self.epsilon,
        )
        return pm.match(problem, method_of(protocol).name, settings=Settings(accountant="pure"), seed=SEED)


async def device(join, folder, issuer, town, number, protocol):
    async def obtain(blinded):
        return tokens.blind_sign(issuer, blinded)

    name, own = town.ids[number], folder / town.ids[number]
    own.mkdir()
    signer = signer_of(SEED, GAME, name)
    taking_part = await identity(own, tokens.public_der(issuer), GAME, obtain, signer=signer)
    with Ledger(own / "ledger", agent=name, lifetime=units_of(5.0)) as ledger:
        latitude, longitude = map(float, town.positions[number])
        place = locate(GRID, latitude, longitude)
        tag = taking_part.tag(GAME).hex()
        owner = Owner("ride", place, GRID, GRID.spots, float(town.epsilon[number]), tag)
        machine = MACHINES[protocol](owner, ledger, draw=draw_of(SEED, name))
        player = DeviceSession(await join(), TRUST, GAME, taking_part, machine, (latitude, longitude), clock=clock)
        return await player.play(), ledger.spent(), machine


def played(bus, folder, issuer, town, protocol):
    """Play a simulated game; return its result, what came of it for each device, and who arrived where."""
    arrivals: list[Arrival] = []
    found: list[Any] = []

    async def main(join):
        gateway = Gateway(await join("resource", "fleet"), TRUST, FLEET_KEYS, arrivals.append)
        await gateway.start()
        topic = Topic(GAME, "issuer")
        key = tokens.public_der(issuer)
        await (await join("issuer")).publish(topic, KEYS["issuer"].packet(topic, m.IssuerKey(key=key)))
        place = PublicSetup(GRID, town.vehicles)
        simulation = Simulation.of(SEED, GAME, town.ids)
        schedule = Schedule(
            protocol,
            (0.5, town.most),
            # All devices are in one process, which must not miss a slot on a machine that has other things to do.
            joining=1.5 if isinstance(bus, MemoryBus) else 4.0,
            preparing=3.0 if protocol == "rounds" else 1.0,
            slot=2.0 if protocol == "report" or isinstance(bus, MemoryBus) else 1.0,
            slots=2000,
        )
        opening = opening_of(schedule, place, key, simulation=simulation)
        journal = Journal(folder / "board.db")
        board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=not isinstance(bus, MemoryBus))
        found[:] = await asyncio.gather(
            board.play(GAME, opening),
            *(device(join, folder, issuer, town, number, protocol) for number in range(town.agents)),
        )
        journal.close()

    bus.run(main)
    return found[0], found[1:], arrivals


@pytest.mark.parametrize("protocol", ["report", "bids", "rounds"])
def test_a_simulated_game_has_the_matching_and_the_charges_of_the_batch(any_bus, memory_folder, issuer, protocol):
    plays_the_batch(any_bus, memory_folder, issuer, protocol, Town(8, 6, 1.0))


@pytest.mark.parametrize(("protocol", "most"), [("report", 1.0), ("bids", 1.0), ("bids", 4.0)])
def test_a_larger_game_does_so_too_also_with_opening_prices_that_follow_synthetic_reports(
    bus, memory_folder, issuer, protocol, most
):
    plays_the_batch(bus, memory_folder, issuer, protocol, Town(14, 11, most))


def plays_the_batch(bus, folder, issuer, protocol, town):
    expected = town.batch(protocol)
    result, devices, arrivals = played(bus, folder, issuer, town, protocol)
    got = {(number, game.resource) for number, (game, _, _) in enumerate(devices) if game.resource is not None}
    assert got == {(agent, town.vehicles.ids[row]) for agent, row in expected.units.tolist()}
    assert result.matched == len(got) == expected.matched == town.resources
    charged = [machine.agent.actions if protocol == "rounds" else int(spent > 0) for _, spent, machine in devices]
    assert charged == expected.charged.tolist()
    # The batch states ε as a number, a ledger counts it in whole units, rounded up.
    assert [spent for _, spent, _ in devices] == [units_of(epsilon) for epsilon in expected.epsilon.tolist()]
    assert {arrival.resource: arrival.position for arrival in arrivals} == {
        name: tuple(town.positions[number].tolist()) for number, name in got
    }
    assert all(game.answer == (game.resource and "Accepted") for game, _, _ in devices)
