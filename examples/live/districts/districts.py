"""Play a city of four districts, each with a board of its own: on one Mosquitto, and on four hubs.

python examples/live/districts/districts.py --out out [--devices 2500] [--transport mqtt,hub]

One operator and one issuer serve all of them. Every device has a connection and a ledger of its own, trusts the board
of its district, and gets one blind token from the issuer. Everything is on this machine, and places are synthetic.
"""

import argparse
import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from palmatch.data.city import crowd
from palmatch.live.issuer import Issuer
from palmatch.live.keys import Signer
from palmatch.live.ops import allow_files, run
from palmatch.live.transport import Access, Hub, connect
from palmatch.live.transport.socket import Limits
from palmatch.live.trust import new_gateway
from palmatch.studies.live_game import Plan, Service, outcome_of, running, write_places

DISTRICTS = ("north", "east", "south", "west")
EDGE, EPSILON = 1000.0, 1.0
# Between two districts, of at most 5 km each.
DEGREES_APART = 0.1


class District(Service):
    """A board with its journal, its key and its trust file; the operator's and the issuer's keys are the city's."""

    interest = 20

    def __init__(self, row, devices, transport, operator, issuer_key, out, work):
        """Write places, and make the keys of this district."""
        self.name = DISTRICTS[row]
        places, shift = crowd(devices, seed=row), (0.0, DEGREES_APART * row)
        (folder := out / self.name).mkdir(parents=True, exist_ok=True)
        # Names of resources are the city's: a broker's access list knows them by name.
        agents, vehicles = (
            replace(found, ids=tuple(f"{self.name}-{one}" for one in found.ids))
            for found in write_places(folder, places.requests + shift, places.vehicles + shift)
        )
        plan = Plan("report", transport, devices, 0.0, EDGE, EPSILON, None, folder)
        super().__init__(plan, work / self.name, agents, vehicles, lambda _what, _done, _total: None)
        self.work.mkdir()
        # All districts are on one machine.
        self.schedule = replace(plan, agents=len(DISTRICTS) * devices).schedule
        self.game, self.issuer_key = f"{self.name}-1", issuer_key
        self.trust = replace(self.trust, operator=operator.public, issuer=issuer_key.public)
        self.gateway = new_gateway(operator, vehicles.ids, int(time.time() * 1000))

    async def play_on(self, broker, token, issuer, stack):
        """Play on a broker that all districts share, or on a hub of its own; return the seconds that it took."""
        began, names = time.monotonic(), tuple(self.gateway.certificates)
        if broker is None:
            hub = Hub(self.trust, limits=Limits(packet=2**23))
            url = await hub.start()
            stack.push_async_callback(hub.stop)
        else:
            url = broker.url

        async def join(role):
            if broker is None:
                return hub.local(Access(role, names if role == "resource" else ()))
            user = self.name if role == "resource" else role
            transport = await connect(url, user=user, password=broker.passwords[user])
            stack.push_async_callback(transport.close)
            return transport

        await self.play_game(url, token, issuer, join)
        return time.monotonic() - began


async def play_city(districts, transport, issuer_key, work):
    """Play one game in every district at the same time; return what came of each."""
    issuer, office = Issuer(work / "issuer.db", issuer_key), Hub()
    async with AsyncExitStack() as stack:
        stack.callback(issuer.close)
        address = await office.start(routes=[issuer.route()])
        stack.push_async_callback(office.stop)
        token = address.replace("ws://", "http://").rsplit("/", 1)[0] + "/token"
        gateways = {one.name: tuple(one.gateway.certificates) for one in districts}
        broker = stack.enter_context(running(work / "broker", gateways)) if transport == "mqtt" else None
        games = (one.play_on(broker, token, issuer, stack) for one in districts)
        return [outcome_of(one, took) for one, took in zip(districts, await asyncio.gather(*games), strict=True)]


def main():
    """Play on each transport, and tell what was matched in each district."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=2500, help="of each district")
    parser.add_argument("--transport", default="mqtt,hub")
    chosen = parser.parse_args()
    # Gateways log that they refuse what the boards of other districts say.
    logging.getLogger("palmatch").addHandler(logging.NullHandler())
    allow_files(200 + len(DISTRICTS) * chosen.devices)
    rows = []
    for transport in chosen.transport.split(","):
        operator, issuer_key = Signer.fresh(), Signer.fresh()
        with TemporaryDirectory(prefix="districts-") as folder:
            more = (chosen.devices, transport, operator, issuer_key, chosen.out / transport, Path(folder))
            districts = [District(row, *more) for row in range(len(DISTRICTS))]
            for one, played in zip(
                districts, run(play_city(districts, transport, issuer_key, Path(folder))), strict=True
            ):
                matched, heard = (
                    (found > least).sum() for found, least in ((played.resource_of, -1), (played.epsilon, 0))
                )
                row = (one.name, transport, chosen.devices, heard, matched, round(100 * played.loss, 2), played.seconds)
                rows.append((*row[:-1], round(row[-1]), round(played.bytes_per_device)))
    columns = ["district", "transport", "devices", "charged", "matched", "loss %", "seconds", "bytes a device"]
    table = pl.DataFrame(rows, columns, orient="row")
    table.write_csv(chosen.out / "districts.csv")
    print(table)


if __name__ == "__main__":
    main()
