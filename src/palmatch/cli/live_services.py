"""What the subcommands of `palmatch live` run until they are stopped: board, device, resource, issuer.

Imports the whole runtime, and is therefore itself imported only when a subcommand runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from palmatch.cli import show
from palmatch.cli.live import Network
from palmatch.device.ledger import Ledger, epsilon_text, reopen, units_of
from palmatch.domains.mobility import Points
from palmatch.errors import InputError, Refused, TransportError
from palmatch.live import ops
from palmatch.live.board import Board, older_journal, series_of
from palmatch.live.issuer import Announcer, Issuer
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer, load_secret
from palmatch.live.listing import NoneFree, read_resources, without
from palmatch.live.mosquitto import Mosquitto, read_passwords
from palmatch.live.ops import Metrics, allow_files, set_up
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.service import Reservations, Schedule, run_board
from palmatch.live.session import Device, Played, Wish, issuer_at, revealed
from palmatch.live.topics import game_name
from palmatch.live.transport import Access, Credentials, Hub, Transport, Unreachable, authority, connect
from palmatch.live.trust import GatewayKeys, Trust, TrustFile, load_gateway, load_trust, stamp_of

_LOG = logging.getLogger(__name__)

# What a certificate takes in the message with which a gateway shows all of them.
_CERTIFICATE = 1024
# Between two attempts to reach a hub or broker that is not there yet.
_AGAIN_SECONDS = 1.0
# How often a gateway looks whether its keys have changed.
_LOOK_SECONDS = 1.0
# Arrivals that are not told again when a gateway has begun anew.
_REMEMBERED = 10_000


async def _connected(
    where: Network, user: str, credentials: Credentials | None = None, *, patience: float = inf
) -> Transport:
    """Connect to the hub or to the broker, which may be started later; a device has no user."""
    if bool(where.hub) == bool(where.broker):
        raise InputError("Name one of --hub ws://… and --broker mqtts://….")
    tls, password = _tls(where), _password(where.passwords, user) if user and where.broker else None
    until, waits = time.monotonic() + patience, False
    while True:
        try:
            return await connect(
                where.hub or where.broker,
                credentials=credentials if where.hub else None,
                user=user if where.broker and user else None,
                password=password,
                tls=tls,
                allow_plain=where.allow_plain,
            )
        except Unreachable as error:
            if time.monotonic() > until:
                raise
            if not waits:
                show.say(f"{error} Waiting for it.")
            waits = True
            await asyncio.sleep(_AGAIN_SECONDS)


def _tls(where: Network) -> ssl.SSLContext | None:
    return None if where.ca is None else authority(where.ca)


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
    trust.check_end(time.time())
    # What is wrong with the list is said before anything listens; games read it again.
    listed = read_resources(resources)
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
            series = series_of(signer.public, journal)
            if (last := issuer.last_opened(series)) > journal.games():
                raise InputError(older_journal(game_name(series, last)))
            issuer.follow(folder / "members.txt")
            await Announcer(hub.local(Access("issuer")), issuer, trust).start()
            routes = [issuer.route()]
        host, port, certificate, key, plain = listening
        files = [None if path is None else str(path) for path in (certificate, key)]
        url = await hub.start(host, port, certificate=files[0], key=files[1], routes=routes, allow_plain=plain)
        show.say(f"The hub is at {url}.")
        transport = hub.local(Access("board"))
    games, hold, grace = limits
    holds = Reservations(transport, trust, hold=hold, grace=grace)
    holds.restore(journal)

    def offered() -> Points:
        """Read the list of the next game, and what the operator has removed."""
        holds.trust = trusted.latest()
        if hub is not None:
            hub.trust = holds.trust
        nonlocal listed
        try:
            listed = read_resources(resources)
        except NoneFree:
            return without(listed, set(listed.ids))
        except InputError as error:
            # The last list that could be read: a feed is away for a moment, or is being written.
            _LOG.warning("resource list", extra={"reason": str(error)})
        return without(listed, holds.removed())

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
    Mosquitto(
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        gateways={"gateway": names},
        allow_plain=allow_plain,
    ).write(out.absolute())
    show.say(f"Start the broker with: mosquitto -c {out / 'mosquitto.conf'}")
    if os.name == "posix" and os.geteuid() == 0:
        # Mosquitto gives up root's rights before it reads these files, and says only that it cannot open them.
        files = " ".join(str(path) for path in (out / "users", out / "access", key) if path is not None)
        show.say(f"As root, before that: chown mosquitto {files}")
    show.say(f"Each party finds its password in {out / 'passwords'} (--passwords).")


async def serve_device(wish: Wish, told: tuple[Any, ...], games: int, patience: float, where: Network) -> None:
    """Take part in games until one gives a resource."""
    path, budget, trust_file, member, issuer, cancel, hand_over = told
    trust = load_trust(trust_file)
    signer, plain = Signer(load_secret(member)), where.allow_plain
    ask = issuer_at(issuer, signer, tls=_tls(where), allow_plain=plain, noted=show.say)
    transport = await _connected(where, "", patience=patience)
    own = reopen(path, acting=True) if path.exists() else Ledger(path, agent=path.stem, lifetime=units_of(budget))
    folder = path.with_suffix(".identities")
    folder.mkdir(exist_ok=True, mode=0o700)
    seen: list[str] = []
    try:
        with own as ledger:
            playing = Device(trust, folder, ledger, ask, hand_over=hand_over, noted=show.say)
            playing.check_trust()
            if cancel:
                await playing.cancel(transport, cancel)
                show.say(f"{cancel}: given back.")
                return
            wish, name = await playing.resumed(transport, wish)
            left = games
            while left:
                before = ledger.spent()
                if name is not None:
                    show.say(f"{name}: going on with the request of a run that was cut off.")
                else:
                    show.say(f"Waiting for the next game that opens, for {patience:g} s at most.")
                    name = await playing.next_game(transport, patience, seen)
                    left -= 1
                seen.append(name)
                playing.keep_open(wish, name)
                try:
                    played, machine = await playing.play(transport, name, wish)
                except Refused as error:
                    # A report that is too old for this game's tables will not be of use later, either.
                    if error.code == "channel":
                        playing.close()
                    raise
                show.say(f"{name}: {_got(played)}")
                show.say(revealed(machine, trust.partition.edge, played, charged=ledger.spent() > before))
                if played.resource is not None:
                    break
                # A game whose result did not reach this device does not count.
                left, name = left + played.cut_off, None
            playing.close()
            show.say(f"Remaining budget in {path}: ε = {epsilon_text(ledger.remaining(), up=False)}.")
    finally:
        await transport.close()


def _got(played: Played) -> str:
    if played.cut_off:
        return "its result did not reach this device; going on to a newer game."
    if played.resource is None:
        return "no resource this time."
    answered = "has not answered yet" if played.answer is None else f"answered {played.answer}"
    shown = f" Show it the code {played.code} on arrival." if played.code else ""
    return f"matched to {played.resource}, which {answered}.{shown}"


async def serve_resource(keys_file: Path, trust_file: Path, most: int | None, where: Network) -> None:
    """Print the position, or the reservation code, that was sealed to each resource."""
    trust, read = load_trust(trust_file), stamp_of(keys_file)
    trust.check_end(time.time())
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
                    if arrival.position is None:
                        what = f"is reserved for the code {arrival.code}"
                    else:
                        what = f"goes to {arrival.position[0]:.6f},{arrival.position[1]:.6f}"
                    show.say(f"{arrival.game}: {arrival.resource} {what}")
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
    trust.check_end(time.time())
    issuer.follow(folder / "members.txt")
    allow_files()
    transport = await _connected(where, "issuer", Credentials("issuer", signer))
    host, port, (certificate, key) = listening
    server = Hub(trust)
    address = await server.start(
        host, port, certificate=certificate, key=key, routes=[issuer.route()], allow_plain=where.allow_plain
    )
    await Announcer(transport, issuer, trust).start()
    show.say(f"Tokens are at {re.sub('^ws', 'http', address).rsplit('/', 1)[0]}/token.")
    await asyncio.Event().wait()


def run(service: Coroutine[Any, Any, None]) -> None:
    """Run a service, with the log on the standard error."""
    set_up()
    ops.run(service)


def _password(path: Path | None, user: str) -> str:
    """Return a user's password, from the file that goes with the broker's configuration."""
    if path is None:
        raise InputError("A broker asks for a password: name the file that was written with its configuration.")
    known = read_passwords(path)
    if user not in known:
        raise InputError(f"{path}: found no user {user!r}; write the broker's configuration again.")
    return known[user]
