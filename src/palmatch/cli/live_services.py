"""What the subcommands of `palmatch live` run: keys, the demo, and services until they are stopped.

Imports the whole runtime, and is therefore itself imported only when a subcommand runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from json import dumps
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from palmatch.cli import show
from palmatch.cli.live import DeviceOptions, GameOptions, Listening, Network, Telling, seconds_of
from palmatch.cli.options import numbers
from palmatch.data.feeds import NoneFree
from palmatch.device import ledger
from palmatch.device import messages as m
from palmatch.device.ledger import Ledger, epsilon_of, epsilon_text, reopen, units_of
from palmatch.device.state import LEAST_MARGIN
from palmatch.domains.mobility import Points
from palmatch.errors import InputError, PalmatchError, ProtocolError, Refused, TransportError
from palmatch.live import ops
from palmatch.live.board import Board, older_journal
from palmatch.live.issuer import Announcer, Issuer
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer, load_secret
from palmatch.live.listing import read_resources, without
from palmatch.live.mosquitto import Mosquitto, read_passwords
from palmatch.live.ops import PrometheusMetrics, allow_files, set_up
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Schedule, method_of
from palmatch.live.service import Reservations, run_board
from palmatch.live.session import Device, GameResult, MatchRequest, NoGame, issuer_at, revealed
from palmatch.live.topics import game_name
from palmatch.live.transport import Access, Credentials, Hub, Transport, Unreachable, authority, connect
from palmatch.live.transport.hub import HttpServer, is_loopback, monitor
from palmatch.live.transport.socket import Limits
from palmatch.live.trust import (
    DAY_MS,
    TrustFile,
    add_members,
    certify,
    key_of,
    keys_of,
    load_gateway,
    load_trust,
    publish_at,
    remove_members,
    remove_resources,
    rotate,
    stamp_of,
    write_keys,
)
from palmatch.mechanisms.choice import MAX_LP_ENTRIES
from palmatch.studies.limit import limit
from palmatch.studies.live_game import Plan, on_the_wire, play

_LOG = logging.getLogger(__name__)

_Value = TypeVar("_Value")

# How a device's run ended, as its exit status.
MATCHED, NOT_MATCHED, REFUSED, NO_GAME = 0, 3, 4, 5
# The largest trust file that is fetched.
_LARGEST_TRUST = 2**24

# The limit of one game need not be sharper than what a game's loss varies by.
_CROWDS, _GAP = 100, 1e-2
# What a certificate takes in the message with which a gateway shows all of them.
_CERTIFICATE = 1024
# Between two attempts to reach a hub or broker that is not there yet, or two looks for new keys of a gateway.
_AGAIN_SECONDS = 1.0
# Arrivals that are not told again when a gateway has begun anew.
_REMEMBERED = 10_000


# --- keys and the demo ---------------------------------------------------------------------------------------------


def make_keys(
    folder: Path, resources: Path, partition: m.Partition, members: Sequence[str], hand_over: m.HandOver
) -> str:
    """Make the keys of all parties, and return what to do with them."""
    names = read_resources(resources).ids
    write_keys(folder, partition, names, members=members, handover=hand_over)
    counts = " and ".join(show.counted(len(found), name) for found, name in ((names, "resource"), (members, "member")))
    return f"Keys for {counts} are in {folder}. Give devices trust.json; keep operator.key offline."


def change_keys(folder: Path, change: str, what: Any, days: int, hand_over: m.HandOver | None) -> str:
    """Change one thing in a folder of keys, which an option of `operator` names, and return what follows from it."""
    trust_file, gateway = folder / "trust.json", folder / "gateway.json"
    if change == "--add-member":
        add_members(folder, what)
        made = [path for path in (folder / f"member-{name}.key" for name in what) if path.exists()]
        files = f"{' and '.join(map(str, made))}: made, and listed" if made else "Listed"
        return f"{files} in {folder / 'members.txt'}. The issuer of this folder needs no restart."
    if change == "--remove-member":
        remove_members(folder, what)
        return (
            f"{' and '.join(what)}: no longer in {folder / 'members.txt'}. The issuer gives them no further token; "
            "those that it has given, for games that were announced already, stay valid."
        )
    if change == "--remove-resource":
        gone = remove_resources(folder, what)
        return (
            f"{' and '.join(gone)}: removed in {trust_file} and {gateway}. The board of this folder no longer offers "
            "them. Give devices the new trust.json: one with the old file still believes their certificates."
        )
    if change == "--rotate":
        if not set(what) <= {"board", "issuer"}:
            raise InputError(f"Expected --rotate board or --rotate issuer, got {' and '.join(what)}.")
        version, files = rotate(folder, what).version, " and ".join(str(folder / f"{party}.key") for party in what)
        return (
            f"{files}: new, and named in version {version} of {trust_file}. Give the services of these parties their "
            "keys, the older ones beside them, and then trust.json to all: no restart is needed. Games that are open "
            "end under the old keys."
        )
    if change == "--publish-at":
        version = publish_at(folder, what).version
        return f"Version {version} of {trust_file} names {what}: serve newer ones there, and give devices this one."
    before = load_trust(trust_file).version if trust_file.exists() else None
    names = certify(folder, read_resources(what).ids, days * DAY_MS, hand_over)
    if before is not None and load_trust(trust_file).version > before:
        show.say(f"{trust_file} would have ended soon; its next version is valid for {days} days: give it out.")
    if not names:
        return f"Every resource of {what} has a certificate that does not end soon; nothing was changed."
    return (
        f"{show.counted(len(names), 'certificate')} added to {gateway}, valid for {days} days. A gateway that runs on "
        "this file needs no restart; the board offers what is on its list."
    )


def play_demo(options: tuple[Any, ...], json: Path | None, *, explain: bool) -> None:
    """Play a game of a service and its devices, and tell what came of it."""
    plan = Plan(*options)
    with show.progress_bar("live") as progress:
        played = play(plan, progress)
    problem, matched = played.problem, int((played.resource_of >= 0).sum())
    guarantee = on_the_wire(plan.protocol, plan.epsilon, seeded=plan.seed is not None)
    figures: dict[str, Any] = {
        "agents": problem.agents,
        "resources": problem.resources,
        "matched": matched,
        "epsilon": float(played.epsilon.max()),
        "failed": list(played.failed),
        "guarantee": asdict(guarantee),
        "not_to_be_published": ["loss", "seed"],
    }
    figures |= {name: getattr(plan, name) for name in ("protocol", "transport", "seed", "faults")}
    own = ("loss", "slots", "messages", "bytes_per_device", "seconds", "deaths")
    figures |= {name: getattr(played, name) for name in own}
    # The least expected loss of any method with this guarantee, where computing it takes seconds.
    types = sum(len(problem.domain.types_of(region)) for region in problem.regions)
    figures["limit"] = None
    if types * problem.resources <= MAX_LP_ENTRIES and plan.epsilon > 0:
        figures["limit"] = limit(problem, plan.epsilon, crowds=_CROWDS, gap=_GAP).bounds[0].loss
    if not show.write_json(json, figures):
        return
    names = ("protocol", "transport", "matched", "loss %", "messages", "bytes/dev.", "slots", "s")
    cells = [f"{matched}/{problem.agents}", f"{100 * played.loss:.2f}", f"{played.messages:,}"]
    cells += [f"{played.bytes_per_device:,.0f}", str(played.slots), f"{played.seconds:.0f}"]
    show.say(f"A synthetic city on this machine: {show.size_of(problem)}")
    show.show_table(names, [(plan.protocol, plan.transport, *cells)], left=2)
    if plan.faults:
        show.say(f"Devices died {played.deaths} times and went on from their ledgers.")
    for line in played.failed:
        show.say(f"Not played to the end: {line}", indent="  ")
    show.show_guarantee(guarantee, explain=explain)
    show.say(f"{show.FROM_THE_TRUTH} Here they may be: the city is synthetic.")
    show.say(f"The files are agents.csv, vehicles.csv and pairs.csv in {plan.out}.")
    if plan.seed is not None and not plan.faults:
        show.say("The same matching from the files, without devices:")
        files = f"{plan.out / 'agents.csv'} {plan.out / 'vehicles.csv'}"
        chosen = f"--method {method_of(plan.protocol).name}" + " --accountant pure" * (plan.protocol == "rounds")
        chosen += f" --edge {plan.edge:g} --epsilon {plan.epsilon:g} --seed {plan.seed}"
        show.say(f"  palmatch match {files} {chosen} --out pairs.csv", indent="    ")


# --- services ------------------------------------------------------------------------------------------------------


class Voice:
    """How a service tells what happens: in words, or with `--json` as one object for each event, words on the side."""

    def __init__(self, telling: Telling) -> None:
        self._json = telling.json
        if telling.json:
            show.results_to_stderr()

    def tell(self, event: str, text: str, figures: Mapping[str, object] = MappingProxyType({})) -> None:
        """Tell of an event, by its name, in words and in figures."""
        show.say(text)
        if self._json:
            sys.stdout.write(dumps({"event": event, "time": round(time.time(), 3), **figures}) + "\n")
            sys.stdout.flush()


async def _connected(
    voice: Voice, where: Network, user: str, credentials: Credentials | None = None, *, patience: float = inf
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
                voice.tell("unreachable", f"{error} Waiting for it.", {"reason": str(error)})
            waits = True
            await asyncio.sleep(_AGAIN_SECONDS)


def _connection(transport: Transport) -> str:
    return "" if transport.connected else "no broker"


async def _watch(
    voice: Voice, telling: Telling, metrics: PrometheusMetrics, problem: Callable[[], str]
) -> HttpServer | None:
    """Serve /metrics and /healthz at HOST:PORT, if there is one."""
    if not telling.metrics:
        return None
    host, _, port = telling.metrics.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"Expected --metrics HOST:PORT such as 127.0.0.1:9100, got {telling.metrics!r}.")
    server = monitor(metrics, problem)
    url = f"http://{await server.begin(host, int(port))}/metrics"
    voice.tell("metrics", f"Metrics are at {url}.", {"url": url})
    return server


async def _end(server: HttpServer | None) -> None:
    if server is not None:
        await server.end()


def _tls(where: Network) -> ssl.SSLContext | None:
    return None if where.ca is None else authority(where.ca)


def _password(path: Path | None, user: str) -> str:
    """Return a user's password, from the file that goes with the broker's configuration."""
    if path is None:
        raise InputError("A broker asks for a password: name the file that was written with its configuration.")
    known = read_passwords(path)
    if user not in known:
        raise InputError(f"{path}: found no user {user!r}; write the broker's configuration again.")
    return known[user]


async def _listen(hub: Hub, listening: Listening, routes: Sequence[Any], *, allow_plain: bool) -> str:
    certificate, key = (None if path is None else str(path) for path in (listening.certificate, listening.key))
    return await hub.start(
        listening.host, listening.port, certificate=certificate, key=key, routes=routes, allow_plain=allow_plain
    )


def _schedule(chosen: GameOptions) -> Schedule:
    length = seconds_of(chosen.slot, "--slot") if chosen.slot else None
    if length is not None and length < LEAST_MARGIN:
        raise InputError(
            f"Expected --slot of at least {LEAST_MARGIN}s, got {chosen.slot}: devices refuse shorter ones."
        )
    return Schedule(
        chosen.protocol,
        tuple(sorted(numbers(chosen.epsilon, "--epsilon"))),
        every=seconds_of(chosen.every, "--every"),
        joining=seconds_of(chosen.joining, "--joining"),
        preparing=2.0,
        slot=length,
        slots=chosen.slots,
        interest=chosen.interest,
    )


async def serve_board(
    folder: Path, resources: Path, chosen: GameOptions, listening: Listening, where: Network, telling: Telling
) -> None:
    """Open games until told to stop; without a broker, also serve the hub and the issuer."""
    voice, schedule = Voice(telling), _schedule(chosen)
    hold, grace = seconds_of(chosen.hold, "--hold"), seconds_of(chosen.grace, "--grace")
    trusted = TrustFile(folder / "trust.json")
    trusted.trust.check_end(time.time())
    signer = key_of(folder, "board", trusted.trust.board)
    # What is wrong with the list is said before anything listens; games read it again.
    listed = read_resources(resources)
    allow_files()
    journal, metrics = Journal(folder / "board.db"), PrometheusMetrics()
    hub = None
    if where.broker:
        transport = await _connected(voice, where, "board")
    else:
        # A gateway shows the certificates of all its resources in one message.
        limits = Limits(packet=max(2**20, _CERTIFICATE * len(listed.ids)))
        hub = Hub(trusted, limits=limits, metrics=metrics)
        routes = []
        if (folder / "issuer.key").exists():
            issuer = Issuer(folder / "issuer.db", key_of(folder, "issuer", trusted.trust.issuer), metrics=metrics)
            series = journal.series(signer.public)
            if (last := issuer.last_opened(series)) > journal.games():
                raise InputError(older_journal(game_name(series, last)))
            issuer.follow(folder / "members.txt")
            await Announcer(hub.local(Access("issuer")), issuer, trusted, partial(key_of, folder, "issuer")).start()
            routes = [issuer.route()]
        url = await _listen(hub, listening, routes, allow_plain=where.allow_plain)
        voice.tell("listening", f"The hub is at {url}.", {"url": url})
        ops.on_signal("SIGHUP", hub.reload_certificate)
        transport = hub.local(Access("board"))
    holds = Reservations(transport, trusted, hold=hold, grace=grace)
    holds.restore(journal)

    def offered() -> Points:
        """Read the list of the next game, and what the operator has removed."""
        nonlocal listed
        try:
            listed = read_resources(resources)
        except NoneFree:
            return without(listed, set(listed.ids))
        except InputError as error:
            # The last list that could be read: a feed is away for a moment, or is being written.
            _LOG.warning("resource list", extra={"reason": str(error)})
        return without(listed, holds.removed())

    board = Board(transport, signer, journal, metrics=metrics)
    watched = await _watch(voice, telling, metrics, lambda: board.trouble or _connection(transport))
    try:
        await holds.start()
        playing = run_board(
            board,
            trusted,
            offered,
            schedule,
            games=chosen.games,
            holds=holds,
            opened=lambda name, opening: voice.tell(
                "opened",
                f"{name}: open for {opening.content.joins_close / 1000:g} s.",
                {"game": name, "protocol": opening.content.protocol, "resources": len(opening.resources.names)},
            ),
            finished=lambda name, result: voice.tell(
                "result",
                f"{name}: {show.counted(result.matched, 'agent')} matched.",
                {"game": name, "matched": result.matched},
            ),
            keys=lambda: keys_of(folder, "board"),
        )
        # Told to end, it leaves between two slots.
        await ops.until_told(playing, board.settled)
        # Devices still have to read the result and to hand over.
        await asyncio.sleep(min(schedule.every, 5.0) if hub is not None else 0.0)
    finally:
        await transport.close()
        if hub is not None:
            await hub.stop()
        await _end(watched)
        journal.close()


def write_mosquitto(out: Path, folder: Path, listening: Listening, *, allow_plain: bool) -> None:
    """Write the configuration and the passwords of a broker."""
    names = tuple(load_gateway(folder / "gateway.json").certificates)
    Mosquitto(**asdict(listening), gateways={"gateway": names}, allow_plain=allow_plain).write(out.absolute())
    show.say(f"Start the broker with: mosquitto -c {out / 'mosquitto.conf'}")
    if os.name == "posix" and os.geteuid() == 0:
        # Mosquitto gives up root's rights before it reads these files, and says only that it cannot open them.
        files = " ".join(str(path) for path in (out / "users", out / "access", listening.key) if path is not None)
        show.say(f"As root, before that: chown mosquitto {files}")
    show.say(f"Each party finds its password in {out / 'passwords'} (--passwords).")


def _limits(chosen: DeviceOptions) -> ledger.Limits:
    """Return the limits of a new ledger."""
    if not chosen.per:
        if chosen.lifetime is not None:
            raise InputError("--lifetime goes with --per: without it, --budget is that of a lifetime.")
        return ledger.Limits(units_of(chosen.budget))
    lifetime = 52 * chosen.budget if chosen.lifetime is None else chosen.lifetime
    period = max(1, round(seconds_of(chosen.per, "--per")))
    return ledger.Limits(units_of(lifetime), units_of(chosen.budget), period)


async def serve_device(position: tuple[float, float], chosen: DeviceOptions, where: Network, telling: Telling) -> int:
    """Take part in games until one gives a resource; return the exit status."""
    voice = Voice(telling)

    def fail(event: str, error: PalmatchError, figures: Mapping[str, object], status: int) -> int:
        show.results_to_stderr()
        voice.tell(event, f"palmatch: {error}", figures)
        return status

    try:
        return MATCHED if await _take_part(voice, position, chosen, where) else NOT_MATCHED
    except (Refused, ProtocolError) as error:
        code = error.code if isinstance(error, Refused) else "protocol"
        return fail("refused", error, {"code": code, "reason": str(error)}, REFUSED)
    except NoGame as error:
        return fail("no_game", error, {"seconds": seconds_of(chosen.patience, "--patience")}, NO_GAME)


async def _take_part(voice: Voice, position: tuple[float, float], chosen: DeviceOptions, where: Network) -> bool:
    """Return whether the device was matched, or has given back what it had."""
    wish = MatchRequest(chosen.request, position, chosen.epsilon, "leave" if chosen.leave else "zero")
    patience, path = seconds_of(chosen.patience, "--patience"), chosen.ledger
    trusted = TrustFile(chosen.trust, partial(fetch_over_tls, tls=_tls(where)))
    signer = Signer(load_secret(chosen.member))
    ask = issuer_at(chosen.issuer, signer, tls=_tls(where), allow_plain=where.allow_plain, noted=voice.tell)
    transport = await _connected(voice, where, "", patience=patience)
    own = reopen(path, acting=True) if path.exists() else Ledger(path, agent=path.stem, **asdict(_limits(chosen)))
    folder = path.with_suffix(".identities")
    folder.mkdir(exist_ok=True, mode=0o700)
    seen: list[str] = []
    try:
        with own as ledger:
            playing = Device(trusted, folder, ledger, ask, hand_over=chosen.hand_over, noted=voice.tell)
            if chosen.accept_operator:
                playing.accept_operator()
            trust = playing.check_trust()
            if chosen.cancel:
                await playing.cancel(transport, chosen.cancel)
                voice.tell("cancelled", f"{chosen.cancel}: given back.", {"game": chosen.cancel})
                return True
            wish, name = await playing.resumed(transport, wish)
            left, matched = chosen.games, False
            while left:
                before = ledger.spent()
                if name is not None:
                    going_on = f"{name}: going on with the request of a run that was cut off."
                    voice.tell("resuming", going_on, {"game": name})
                else:
                    waiting = f"Waiting for the next game that opens, for {patience:g} s at most."
                    voice.tell("waiting", waiting, {"seconds": patience})
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
                sentence = revealed(machine, trust.partition.edge, played, charged=ledger.spent() > before)
                figures = {name: getattr(played, name) for name in ("game", "resource", "answer", "code", "cut_off")}
                figures |= {"charged": epsilon_of(ledger.spent() - before), "revealed": sentence}
                voice.tell("result", f"{name}: {_got(played)}", figures)
                show.say(sentence)
                if matched := played.resource is not None:
                    break
                # A game whose result did not reach this device does not count.
                left, name = left + played.cut_off, None
            playing.close()
            budget = f"Remaining budget in {path}: ε = {epsilon_text(ledger.remaining(), up=False)}."
            lifetime = epsilon_of(ledger.summary().limits.lifetime)
            voice.tell("budget", budget, {"remaining": epsilon_of(ledger.remaining()), "lifetime": lifetime})
            return matched
    finally:
        await transport.close()


def _got(played: GameResult) -> str:
    if played.cut_off:
        return "its result did not reach this device; going on to a newer game."
    if played.resource is None:
        return "no resource this time."
    answered = "has not answered yet" if played.answer is None else f"answered {played.answer}"
    shown = f" Show it the code {played.code} on arrival." if played.code else ""
    return f"matched to {played.resource}, which {answered}.{shown}"


async def serve_resource(keys_file: Path, trust_file: Path, most: int | None, where: Network, telling: Telling) -> None:
    """Print the position, or the reservation code, that was sealed to each resource."""
    voice, trusted, metrics = Voice(telling), TrustFile(trust_file), PrometheusMetrics()
    trusted.trust.check_end(time.time())
    opened: list[Transport] = []
    watched = await _watch(voice, telling, metrics, lambda: _connection(opened[0]) if opened else "no broker")

    def arrived(arrival: Arrival) -> None:
        metrics.add("palmatch_arrivals_total")
        figures: dict[str, object] = {name: getattr(arrival, name) for name in ("game", "resource", "code")}
        figures["tag"] = arrival.tag.hex()
        if arrival.position is None:
            what = f"is reserved for the code {arrival.code}"
        else:
            what = f"goes to {arrival.position[0]:.6f},{arrival.position[1]:.6f}"
            figures |= dict(zip(("latitude", "longitude"), arrival.position, strict=True))
        voice.tell("arrival", f"{arrival.game}: {arrival.resource} {what}", figures)

    async def serving() -> Transport:
        """Serve the resources that have a certificate, on a connection whose rights are those that it begins with."""
        keys = load_gateway(keys_file)
        credentials = Credentials("resource", keys.signer, certificates=tuple(keys.certificates.values()))
        transport = await _connected(voice, where, "gateway", credentials)
        await Gateway(transport, trusted, keys, coming.put_nowait).start()
        number = len(keys.certificates)
        voice.tell("serving", f"Serving {show.counted(number, 'resource')}.", {"resources": number})
        return transport

    read, coming, served = stamp_of(keys_file), asyncio.Queue[Arrival](), 0
    told: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)
    try:
        opened.append(await serving())
        while most is None or served < most:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_SECONDS):
                    arrival = await coming.get()
                    # A gateway with new certificates begins anew, and devices hand over until they have an answer.
                    if (arrival.game, arrival.resource) not in told:
                        served += 1
                        told.append((arrival.game, arrival.resource))
                        arrived(arrival)
            if (found := stamp_of(keys_file)) != read:
                read = found
                try:
                    opened.insert(0, await serving())
                    await opened.pop().close()
                except (InputError, TransportError) as error:
                    _LOG.warning("gateway keys", extra={"reason": str(error)})
        # The answer to the last one is still to be sent.
        await asyncio.sleep(0.5)
    finally:
        for transport in opened:
            await transport.close()
        await _end(watched)


async def serve_issuer(folder: Path, listening: Listening, where: Network, telling: Telling) -> None:
    """Give tokens until stopped."""
    voice, trusted, metrics = Voice(telling), TrustFile(folder / "trust.json"), PrometheusMetrics()
    trusted.trust.check_end(time.time())
    credentials = Credentials("issuer", key_of(folder, "issuer", trusted.trust.issuer))
    issuer = Issuer(folder / "issuer.db", credentials.signer, metrics=metrics)
    issuer.follow(folder / "members.txt")
    allow_files()
    transport = await _connected(voice, where, "issuer", credentials)
    hub = Hub(trusted)
    address = await _listen(hub, listening, [issuer.route()], allow_plain=where.allow_plain)

    def signer_of(public: bytes) -> Signer:
        # Also for the hub, when the connection is made again.
        credentials.signer = key_of(folder, "issuer", public)
        return credentials.signer

    watched = await _watch(voice, telling, metrics, lambda: _connection(transport))
    ops.on_signal("SIGHUP", hub.reload_certificate)
    announcer = Announcer(transport, issuer, trusted, signer_of)
    await announcer.start()
    url = f"{re.sub('^ws', 'http', address).rsplit('/', 1)[0]}/token"
    voice.tell("listening", f"Tokens are at {url}.", {"url": url})
    try:
        while True:
            # The operator may have changed the issuer's key.
            announcer.follow()
            await asyncio.sleep(_AGAIN_SECONDS)
    finally:
        await transport.close()
        await hub.stop()
        await _end(watched)
        issuer.close()


async def fetch_over_tls(url: str, *, tls: ssl.SSLContext | None) -> bytes:
    """Return what is at an address, over TLS."""
    if not url.startswith("https://"):
        raise InputError(f"{url} is not encrypted: expected https://.")

    def get() -> bytes:
        with urllib.request.urlopen(url, timeout=30, context=tls or ssl.create_default_context()) as answer:
            found: bytes = answer.read(_LARGEST_TRUST)
            return found

    return await asyncio.to_thread(get)


async def serve_page(
    trust_file: Path, told: tuple[str, str, float], listening: Listening, telling: Telling, *, allow_plain: bool
) -> None:
    """Serve the page of phones until stopped."""
    from palmatch.web.page import PhonePage

    voice, host, files = Voice(telling), listening.host, (listening.certificate, listening.key)
    if files[0] is None and not (allow_plain or is_loopback(host)):
        raise InputError(f"{host} is not the loopback, and phones tell no place to a page without TLS: --certificate.")
    trusted = TrustFile(trust_file)
    trusted.trust.check_end(time.time())
    server = HttpServer(PhonePage(trusted.latest, *told).app())
    certificate, key = (None if path is None else str(path) for path in files)
    where = await server.begin(host, listening.port, certificate, key)
    url = f"{'http' if certificate is None else 'https'}://{where}/"
    ops.on_signal("SIGHUP", server.reload_certificate)
    voice.tell("listening", f"The page is at {url} (Ctrl-C ends it).", {"url": url})
    try:
        await asyncio.Event().wait()
    finally:
        await server.end()


def run(program: Coroutine[Any, Any, _Value]) -> _Value:
    """Run a program, with the log on the standard error."""
    set_up()
    return ops.run(program)


def serve(service: Coroutine[Any, Any, None]) -> None:
    """Run a service until it is told to end."""
    run(ops.until_told(service))
