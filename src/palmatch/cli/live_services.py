"""What the subcommands of `palmatch live` run until they are stopped: board, device, resource, issuer, witness.

Imports the whole runtime, and is therefore itself imported only when a subcommand runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from palmatch.cli import show
from palmatch.cli.live import Network
from palmatch.data.points import Points
from palmatch.device.budget import epsilon_text
from palmatch.device.ledger import Ledger, reopen, units_of
from palmatch.errors import InputError, TransportError
from palmatch.live import loop
from palmatch.live.board import Board
from palmatch.live.client import Device, Wish, issuer_at
from palmatch.live.guarantee import revealed
from palmatch.live.holds import Holds
from palmatch.live.issuer import Issuer
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer, load_secret
from palmatch.live.logs import set_up
from palmatch.live.maps import Map
from palmatch.live.metrics import Metrics
from palmatch.live.mosquitto import Mosquitto, read_passwords
from palmatch.live.records import partition_record
from palmatch.live.resource import Arrival, Gateway, GatewayKeys, load_gateway
from palmatch.live.rules import refuse_demand
from palmatch.live.service import Announcer, Schedule, read_resources, run_board, run_witness, without
from palmatch.live.transport import Access, Credentials, Hub, Transport, connect
from palmatch.live.trust import Trust, TrustFile, load_trust, stamp_of
from palmatch.live.usage import allow_files
from palmatch.live.witness import Witness

_LOG = logging.getLogger(__name__)

# What a certificate takes in the message with which a gateway shows all of them.
_CERTIFICATE = 1024
# How often a gateway looks whether its keys have changed.
_LOOK_SECONDS = 1.0
# Arrivals that are not told again when a gateway has begun anew.
_REMEMBERED = 10_000


async def _connected(where: Network, user: str, credentials: Credentials | None = None) -> Transport:
    """Connect to the hub or to the broker; a device has no user."""
    if bool(where.hub) == bool(where.broker):
        raise InputError("Name one of --hub ws://… and --broker mqtts://….")
    if where.hub:
        return await connect(where.hub, credentials=credentials, allow_plain=where.allow_plain)
    password = _password(where.passwords, user) if user else None
    return await connect(where.broker, user=user or None, password=password, allow_plain=where.allow_plain)


async def serve_board(
    folder: Path,
    resources: Path,
    schedule: Schedule,
    limits: tuple[int | None, float, float],
    listening: tuple[str, int, Path | None, Path | None, bool],
    where: Network,
) -> None:
    """Open games until told to stop; without a broker, also serve the hub and the issuer."""
    trusted, signer = TrustFile(folder / "trust.json"), Signer(load_secret(folder / "board.key"))
    trust = trusted.trust
    # What is wrong with the list is said before anything listens; games read it again.
    listed = read_resources(resources)
    place = Map(partition_record(trust.partition), listed, interest=schedule.interest)
    refuse_demand(schedule.protocol, place, schedule.demand)
    allow_files()
    journal, metrics = Journal(folder / "board.db"), Metrics()
    hub = None
    if where.broker:
        transport = await _connected(where, "board")
    else:
        # A gateway shows the certificates of all its resources in one message.
        hub = Hub(trust, largest=max(2**20, _CERTIFICATE * len(listed.ids)))
        metrics = hub.exchange.metrics
        routes = []
        if (folder / "issuer.key").exists():
            issuer = Issuer(folder / "issuer.db", Signer(load_secret(folder / "issuer.key")))
            issuer.follow(folder / "members.txt")
            await Announcer(hub.local(Access("issuer")), issuer, trust).start()
            routes = [issuer.route()]
        host, port, certificate, key, plain = listening
        files = [None if path is None else str(path) for path in (certificate, key)]
        url = await hub.start(host, port, certificate=files[0], key=files[1], routes=routes, allow_plain=plain)
        show.say(f"The hub is at {url}.")
        transport = hub.local(Access("board"))
    games, hold, grace = limits
    holds = Holds(transport, trust, hold=hold, grace=grace)
    holds.restore(journal)

    def offered() -> Points:
        """Read the list of the next game, and what the operator has removed."""
        holds.trust = trusted.latest()
        if hub is not None:
            hub.trust = holds.trust
        return without(read_resources(resources), holds.removed())

    try:
        await holds.start()
        await run_board(
            Board(transport, signer, journal, metrics=metrics),
            trust,
            offered,
            schedule,
            games=games,
            holds=holds,
            finished=lambda name, result: show.say(f"{name}: {show.counted(result.matched, 'agent')} matched."),
        )
        # Devices still have to read the result and to hand over.
        await asyncio.sleep(min(schedule.every, 5.0) if hub is not None else 0.0)
    finally:
        await transport.close()
        if hub is not None:
            await hub.stop()
        journal.close()


def write_mosquitto(
    out: Path, folder: Path, host: str, port: int, certificate: Path | None, key: Path | None, allow_plain: bool
) -> None:
    """Write the configuration and the passwords of a broker."""
    names = tuple(load_gateway(folder / "gateway.json").certificates)
    witnesses = tuple(path.stem.removeprefix("witness-") for path in sorted(folder.glob("witness-*.key")))
    Mosquitto(
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        gateways={"gateway": names},
        witnesses=witnesses,
        allow_plain=allow_plain,
    ).write(out.absolute())
    show.say(f"Start the broker with: mosquitto -c {out / 'mosquitto.conf'}")
    if os.name == "posix" and os.geteuid() == 0:
        # Mosquitto gives up root's rights before it reads these files, and says only that it cannot open them.
        show.say(f"As root, before that: chown mosquitto {out / 'users'} {out / 'access'}")
    show.say(f"Each party finds its password in {out / 'passwords'} (--passwords).")


async def serve_device(wish: Wish, told: tuple[Any, ...], games: int, patience: float, where: Network) -> None:
    """Take part in games until one gives a resource."""
    path, budget, trust_file, member, issuer, witnesses, cancel = told
    trust = load_trust(trust_file)
    transport = await _connected(where, "")
    own = reopen(path, acting=True) if path.exists() else Ledger(path, agent=path.stem, lifetime=units_of(budget))
    folder = path.with_suffix(".identities")
    folder.mkdir(exist_ok=True, mode=0o700)
    seen: list[str] = []
    try:
        with own as ledger:
            ask = issuer_at(issuer, Signer(load_secret(member)))
            playing = Device(trust, folder, ledger, ask, witnesses, noted=show.say)
            if cancel:
                await playing.cancel(transport, cancel)
                show.say(f"{cancel}: given back.")
                return
            for _ in range(games):
                before = ledger.spent()
                show.say(f"Waiting for the next game that opens, for {patience:g} s at most.")
                name = await playing.next_game(transport, patience, seen)
                seen.append(name)
                played, machine = await playing.play(transport, name, wish)
                show.say(f"{name}: {_got(played)}")
                show.say(
                    revealed(machine, trust.partition.edge, charged=ledger.spent() > before, served_by=played.resources)
                )
                if played.resources:
                    break
            show.say(f"Remaining budget in {path}: ε = {epsilon_text(ledger.remaining(), up=False)}.")
    finally:
        await transport.close()


def _got(played: Any) -> str:
    if not played.resources:
        return "no resource this time."
    said = {
        name: f"answered {played.answers[name]}" if name in played.answers else "has not answered yet"
        for name in played.resources
    }
    return f"matched to {' and to '.join(f'{name}, which {answer}' for name, answer in said.items())}."


async def serve_resource(keys_file: Path, trust_file: Path, most: int | None, where: Network) -> None:
    """Print the position that was sealed to each resource."""
    trust, read = load_trust(trust_file), stamp_of(keys_file)
    coming: asyncio.Queue[Arrival] = asyncio.Queue()
    transport = await _serving(load_gateway(keys_file), trust, where, coming)
    told: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)
    served = 0
    while most is None or served < most:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_SECONDS):
                arrival = await coming.get()
                # A gateway with new certificates begins anew, and devices hand over until they have an answer.
                if (arrival.game, arrival.resource) not in told:
                    served += 1
                    told.append((arrival.game, arrival.resource))
                    at = f"{arrival.position[0]:.6f},{arrival.position[1]:.6f}"
                    show.say(f"{arrival.game}: {arrival.resource} goes to {at}")
        if (found := stamp_of(keys_file)) != read:
            read = found
            try:
                transport, before = await _serving(load_gateway(keys_file), trust, where, coming), transport
                await before.close()
            except (InputError, TransportError) as error:
                _LOG.warning("gateway keys", extra={"reason": str(error)})
    # The answer to the last one is still to be sent.
    await asyncio.sleep(0.5)
    await transport.close()


async def _serving(keys: GatewayKeys, trust: Trust, where: Network, coming: asyncio.Queue[Arrival]) -> Transport:
    """Serve the resources that have a certificate, on a connection of their own: its rights are those it began with."""
    credentials = Credentials("resource", keys.signer, certificates=tuple(keys.certificates.values()))
    transport = await _connected(where, "gateway", credentials)
    await Gateway(transport, trust, keys, coming.put_nowait).start()
    show.say(f"Serving {show.counted(len(keys.certificates), 'resource')}.")
    return transport


async def serve_issuer(folder: Path, listening: tuple[str, int, list[str | None]], where: Network) -> None:
    """Give tokens until stopped."""
    signer = Signer(load_secret(folder / "issuer.key"))
    trust, issuer = load_trust(folder / "trust.json"), Issuer(folder / "issuer.db", signer)
    issuer.follow(folder / "members.txt")
    transport = await _connected(where, "issuer", Credentials("issuer", signer))
    host, port, (certificate, key) = listening
    server = Hub(trust)
    address = await server.start(
        host, port, certificate=certificate, key=key, routes=[issuer.route()], allow_plain=where.allow_plain
    )
    await Announcer(transport, issuer, trust).start()
    show.say(f"Tokens are at {re.sub('^ws', 'http', address).rsplit('/', 1)[0]}/token.")
    await asyncio.Event().wait()


async def serve_witness(key: Path, trust_file: Path, where: Network) -> None:
    """Watch the board until stopped."""
    name, signer, trust = key.stem.removeprefix("witness-"), Signer(load_secret(key)), load_trust(trust_file)
    transport = await _connected(where, name, Credentials("witness", signer, name))
    show.say(f"Watching the board as {name}.")
    await run_witness(Witness(name, signer, trust.board), [transport])


def run(service: Coroutine[Any, Any, None]) -> None:
    """Run a service, with the log on the standard error."""
    set_up()
    loop.run(service)


def _password(path: Path | None, user: str) -> str:
    """Return a user's password, from the file that goes with the broker's configuration."""
    if path is None:
        raise InputError("A broker asks for a password: name the file that was written with its configuration.")
    known = read_passwords(path)
    if user not in known:
        raise InputError(f"{path}: found no user {user!r}; write the broker's configuration again.")
    return known[user]
