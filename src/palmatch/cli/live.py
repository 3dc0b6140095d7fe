"""palmatch live: matching among devices, each with its own position and its own budget; no server is trusted with them.

The runtime is an extra, imported when a subcommand runs, so that the help works without it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from palmatch.cli import options, show
from palmatch.cli.outputs import check_outputs, folder_for
from palmatch.errors import InputError

if TYPE_CHECKING:
    from palmatch.live.demo import Plan, Played
    from palmatch.live.transport import Credentials, Transport

NAME = "live"
HELP = "Match live: every agent on its own device, over a network, with no server to trust."

app = typer.Typer(name=NAME, help=HELP, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")


class Protocols(StrEnum):
    """How devices play."""

    report = "report"
    bids = "bids"
    rounds = "rounds"


class Transports(StrEnum):
    """What carries the messages."""

    hub = "hub"
    mqtt = "mqtt"


Protocol: TypeAlias = Annotated[
    Protocols,
    typer.Option("--protocol", help="One report each (hungarian-once), bids (once), or rounds (palma)."),
]
Trust: TypeAlias = Annotated[
    Path, typer.Option("--trust", help="The operator's trust file.", show_default=False, dir_okay=False)
]
HubAddress: TypeAlias = Annotated[str, typer.Option("--hub", help="A hub, ws:// or wss://.", show_default=False)]
Broker: TypeAlias = Annotated[
    str, typer.Option("--broker", help="An MQTT broker, mqtt:// or mqtts://.", show_default=False)
]
Passwords: TypeAlias = Annotated[
    Path | None, typer.Option("--passwords", help="The file of passwords that goes with a broker.", show_default=False)
]
AllowPlain: TypeAlias = Annotated[
    bool, typer.Option("--allow-plain", help="Allow connections without TLS to other machines.")
]
# --hub, --broker, --passwords and --allow-plain.
Where: TypeAlias = tuple[str, str, Path | None, bool]
Folder: TypeAlias = Annotated[Path, typer.Argument(help="The folder of the operator's keys.", show_default=False)]


@app.command(
    "demo",
    help="Play a morning of a made-up city with a process for each party: board, resources, groups of devices.",
    epilog="Example: palmatch live demo --protocol bids --seed 1 --json live.json",
)
def demo(
    protocol: Protocol = Protocols.report,
    transport: Annotated[Transports, typer.Option("--transport", help="The hub, or Mosquitto.")] = Transports.hub,
    agents: Annotated[int, typer.Option("--agents", help="How many devices.", min=1)] = 150,
    faults: Annotated[
        float,
        typer.Option("--faults", help="Chance that a packet is lost, late, doubled; that a device dies.", max=0.5),
    ] = 0.0,
    edge: options.Edge = 1000.0,
    epsilon: Annotated[float, typer.Option("--epsilon", help="ε of every device.", min=0)] = 1.0,
    seed: options.SecretSeed = None,
    out: Annotated[Path, typer.Option("--out", help="The folder for agents, vehicles and pairs.")] = Path("live"),
    json: options.Json = None,
) -> None:
    """Play the demo."""
    _need_extra()
    from palmatch.live.demo import Plan, play

    check_outputs(json=json)
    plan = Plan(protocol.value, transport.value, agents, faults, edge, epsilon, seed, folder_for(out))
    with show.progress_bar("live") as report:
        played = play(plan, report)
    show.write_json(json, _figures(plan, played))
    if str(json) != "-":
        _tell(plan, played)


def _figures(plan: Plan, played: Played) -> dict[str, Any]:
    return {
        "agents": played.problem.agents,
        "resources": played.problem.resources,
        "matched": int((played.resource_of >= 0).sum()),
        "loss": played.loss,
        "limit": None,
        "protocol": plan.protocol,
        "transport": plan.transport,
        "slots": played.slots,
        "messages": played.messages,
        "bytes_per_device": played.bytes_per_device,
        "epsilon": float(played.epsilon.max()),
        "seconds": played.seconds,
        "seed": plan.seed,
        "faults": plan.faults,
        "deaths": played.deaths,
        "failed": list(played.failed),
        "guarantee": asdict(_guarantee(plan.protocol, plan.epsilon, plan.seed)),
        "not_to_be_published": ["loss", "seed"],
    }


def _tell(plan: Plan, played: Played) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("protocol", "transport", "matched", "loss %", "messages", "bytes/device", "slots", "s"):
        table.add_column(name, justify="left" if name in ("protocol", "transport") else "right")
    matched = int((played.resource_of >= 0).sum())
    table.add_row(
        plan.protocol,
        plan.transport,
        f"{matched}/{played.problem.agents}",
        f"{100 * played.loss:.2f}",
        f"{played.messages:,}",
        f"{played.bytes_per_device:,.0f}",
        str(played.slots),
        f"{played.seconds:.0f}",
    )
    show.say(f"A made-up city on this machine: {show.size_of(played.problem)}")
    show.out().print(table)
    if plan.faults:
        show.say(f"Devices died {played.deaths} times and went on from their ledgers.")
    for line in played.failed:
        show.say(f"Not played to the end: {line}", indent="  ")
    if played.blind:
        show.say(f"The board's process could not open {plan.out / 'agents.csv'}: it tried, and was refused.")
    show.show_guarantee(_guarantee(plan.protocol, plan.epsilon, plan.seed))
    show.say(f"{show.FROM_THE_TRUTH} Here they may be: the city is made up.")
    show.say(f"The files are agents.csv, vehicles.csv and pairs.csv in {plan.out}.")
    if plan.seed is not None and not plan.faults:
        show.say("The same matching from the files, without devices:")
        show.say(f"  {_as_batch(plan)}", indent="    ")


def _as_batch(plan: Plan) -> str:
    """Return the command that computes the same matching from the files."""
    from palmatch.live.rules import method_of

    files = f"{plan.out / 'agents.csv'} {plan.out / 'vehicles.csv'}"
    pure = " --accountant pure" if plan.protocol == "rounds" else ""
    chosen = f"--method {method_of(plan.protocol).name}{pure} --edge {plan.edge:g} --epsilon {plan.epsilon:g}"
    return f"palmatch match {files} {chosen} --seed {plan.seed} --out pairs.csv"


def _guarantee(protocol: str, epsilon: float, seed: int | None) -> Any:
    from palmatch.live.guarantee import on_the_wire

    return on_the_wire(protocol, epsilon, seeded=seed is not None)


@app.command(
    "operator",
    help="Make the keys of all parties and the trust file that devices are given.",
    epilog="Example: palmatch live operator keys --resources vehicles.csv --member alice",
)
def operator(
    folder: Folder,
    resources: Annotated[Path, typer.Option("--resources", help="CSV, Parquet or GBFS.", show_default=False)],
    edge: options.Edge = 1000.0,
    spacing: options.Spacing = 100.0,
    origin: options.Origin = options.ORIGIN,
    member: Annotated[list[str] | None, typer.Option("--member", help="A member's name; repeat it.")] = None,
    witness: Annotated[list[str] | None, typer.Option("--witness", help="A witness's name; repeat it.")] = None,
) -> None:
    """Write keys."""
    _need_extra()
    from palmatch.live import messages as m
    from palmatch.live.operator import write_keys
    from palmatch.live.service import read_resources

    names = read_resources(resources).ids
    partition = m.Partition(edge=edge, origin=_pair(origin, "--origin"), spacing=spacing)
    write_keys(folder, partition, names, members=member or (), witnesses=witness or ())
    show.say(f"Keys for {len(names)} resources, {len(member or ())} members and {len(witness or ())} witnesses are in")
    show.say(f"{folder}. Give devices trust.json; keep operator.key offline.")


@app.command(
    "board",
    help="Open games, match what devices report, publish results; with a hub and the issuer, unless told otherwise.",
    epilog="Example: palmatch live board keys --resources vehicles.csv --every 30s",
)
def board(
    folder: Folder,
    resources: Annotated[
        Path | None, typer.Option("--resources", help="CSV, Parquet or GBFS vehicle_status.json; read for each game.")
    ] = None,
    protocol: Protocol = Protocols.report,
    every: Annotated[str, typer.Option("--every", help="From one opening to the next.")] = "30s",
    joining: Annotated[str, typer.Option("--joining", help="How long devices can join.")] = "10s",
    slot: Annotated[str, typer.Option("--slot", help="Length of a slot.")] = "5s",
    slots: Annotated[int, typer.Option("--slots", help="Most slots of a game of bids or rounds.", min=1)] = 200,
    epsilon: Annotated[str, typer.Option("--epsilon", help="The ε that devices may have.")] = "0,0.5,1,2,4",
    games: Annotated[int | None, typer.Option("--games", help="Stop after so many games.", min=1)] = None,
    hold: Annotated[str, typer.Option("--hold", help="How long a matched resource is not offered again.")] = "15m",
    grace: Annotated[str, typer.Option("--grace", help="The same, if it never got a hand-over.")] = "1m",
    host: Annotated[str, typer.Option("--host", help="Where the hub listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The hub's port, or the broker's for its configuration.")] = 8765,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="PEM file for TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM file of the certificate's key.")] = None,
    broker: Broker = "",
    passwords: Passwords = None,
    allow_plain: AllowPlain = False,
    write_mosquitto_conf: Annotated[
        Path | None,
        typer.Option("--write-mosquitto-conf", help="Write a broker's configuration into a folder, and stop."),
    ] = None,
) -> None:
    """Run the board."""
    _need_extra()
    if write_mosquitto_conf is not None:
        _write_mosquitto(write_mosquitto_conf, folder, host, port, certificate, key, allow_plain)
        return
    if resources is None:
        raise InputError("The board needs a resource list: --resources FILE.")
    from palmatch.live.service import Schedule

    schedule = Schedule(
        protocol.value,
        tuple(sorted(_number(part, "--epsilon") for part in epsilon.split(","))),
        every=_seconds(every, "--every"),
        joining=_seconds(joining, "--joining"),
        preparing=2.0,
        slot=_seconds(slot, "--slot"),
        slots=slots,
    )
    hub = (host, port, certificate, key, allow_plain)
    limits = (games, _seconds(hold, "--hold"), _seconds(grace, "--grace"))
    _run(_serve_board(folder, resources, schedule, limits, hub, (broker, passwords, allow_plain)))


async def _serve_board(
    folder: Path,
    resources: Path,
    schedule: Any,
    limits: tuple[int | None, float, float],
    listening: tuple[str, int, Path | None, Path | None, bool],
    told: tuple[str, Path | None, bool],
) -> None:
    from palmatch.live.board import Board
    from palmatch.live.holds import Holds
    from palmatch.live.issuer import Issuer
    from palmatch.live.journal import Journal
    from palmatch.live.keys import Signer, load_secret
    from palmatch.live.metrics import Metrics
    from palmatch.live.service import Announcer, read_members, read_resources, run_board
    from palmatch.live.transport import Access, Hub
    from palmatch.live.trust import load_trust

    trust, signer = load_trust(folder / "trust.json"), Signer(load_secret(folder / "board.key"))
    journal, metrics = Journal(folder / "board.db"), Metrics()
    broker, passwords, allow_plain = told
    hub = None
    if broker:
        transport = await _connected("", broker, passwords, allow_plain, "board")
    else:
        hub = Hub(trust, largest=2**20)
        metrics = hub.exchange.metrics
        routes = []
        if (folder / "issuer.key").exists():
            issuer = Issuer(folder / "issuer.db", Signer(load_secret(folder / "issuer.key")))
            issuer.register(read_members(folder / "members.txt"))
            await Announcer(hub.local(Access("issuer")), issuer, trust).start()
            routes = [issuer.route()]
        host, port, certificate, key, plain = listening
        files = [None if path is None else str(path) for path in (certificate, key)]
        url = await hub.start(host, port, certificate=files[0], key=files[1], routes=routes, allow_plain=plain)
        show.say(f"The hub is at {url}.")
        transport = hub.local(Access("board"))
    games, hold, grace = limits
    holds = Holds(transport, trust, hold=hold, grace=grace)
    try:
        await holds.start()
        await run_board(
            Board(transport, signer, journal, metrics=metrics),
            trust,
            lambda: read_resources(resources),
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


def _write_mosquitto(
    out: Path, folder: Path, host: str, port: int, certificate: Path | None, key: Path | None, allow_plain: bool
) -> None:
    from palmatch.live.mosquitto import Mosquitto
    from palmatch.live.resource import load_gateway

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
    show.say(f"Each party finds its password in {out / 'passwords'} (--passwords).")


@app.command(
    "device",
    help="Take part in the next game, with a position and a budget that stay on this machine.",
    epilog=(
        "Example: palmatch live device --at 40.75,-73.99 --epsilon 1 --ledger alice.ledger "
        "--trust keys/trust.json --member keys/member-alice.key --hub ws://127.0.0.1:8765/bus"
    ),
)
def device(
    at: Annotated[
        str, typer.Option("--at", help="LAT,LON in degrees; only the resource learns it.", show_default=False)
    ],
    ledger: Annotated[Path, typer.Option("--ledger", help="Where the budget is kept.", show_default=False)],
    trust: Trust,
    member: Annotated[Path, typer.Option("--member", help="The key that the issuer knows.", show_default=False)],
    epsilon: Annotated[float, typer.Option("--epsilon", help="ε of this request.", min=0)] = 1.0,
    budget: Annotated[float, typer.Option("--budget", help="ε of a lifetime, for a new ledger.", min=0)] = 10.0,
    request: Annotated[
        str, typer.Option("--request", help="A name for this wish; the same one is never paid twice.")
    ] = "",
    games: Annotated[int, typer.Option("--games", help="Wait for a match over so many games.", min=1)] = 1,
    cancel: Annotated[str, typer.Option("--cancel", help="Give back what it got in this game, and stop.")] = "",
    patience: Annotated[str, typer.Option("--patience", help="How long to wait for a game.")] = "2m",
    leave: Annotated[bool, typer.Option("--leave", help="Without budget, leave instead of playing ε = 0.")] = False,
    witness: Annotated[list[str] | None, typer.Option("--witness", help="A witness to ask; repeat it.")] = None,
    issuer: Annotated[str, typer.Option("--issuer", help="The issuer's address; the hub's own unless given.")] = "",
    hub: HubAddress = "",
    broker: Broker = "",
    allow_plain: AllowPlain = False,
) -> None:
    """Take part."""
    _need_extra()
    from palmatch.live.client import Wish

    position = _pair(at, "--at")
    if not (abs(position[0]) <= 90 and abs(position[1]) <= 180):
        raise InputError("Expected --at LAT,LON in degrees, between -90 and 90 and between -180 and 180.")
    where = issuer or (re.sub(r"^ws", "http", hub).rsplit("/", 1)[0] + "/token" if hub else "")
    if not where:
        raise InputError("With a broker the device needs the issuer's address: --issuer https://….")
    wish = Wish(request or _fresh_request(), position, epsilon, "leave" if leave else "zero")
    told = (ledger, budget, trust, member, where, tuple(witness or ()), cancel)
    _run(_serve_device(wish, told, games, _seconds(patience, "--patience"), (hub, broker, allow_plain)))


async def _serve_device(
    wish: Any, told: tuple[Any, ...], games: int, patience: float, where: tuple[str, str, bool]
) -> None:
    from palmatch.device.ledger import Ledger, epsilon_text, reopen, units_of
    from palmatch.live.client import Device, issuer_at
    from palmatch.live.guarantee import revealed
    from palmatch.live.keys import Signer, load_secret
    from palmatch.live.trust import load_trust

    path, budget, trust_file, member, issuer, witnesses, cancel = told
    trust = load_trust(trust_file)
    hub, broker, allow_plain = where
    transport = await _connected(hub, broker, None, allow_plain, "")
    own = reopen(path) if path.exists() else Ledger(path, agent=path.stem, lifetime=units_of(budget))
    folder = path.with_suffix(".identities")
    folder.mkdir(exist_ok=True, mode=0o700)
    seen: list[str] = []
    try:
        with own as ledger:
            playing = Device(trust, folder, ledger, issuer_at(issuer, Signer(load_secret(member))), witnesses)
            if cancel:
                await playing.cancel(transport, cancel)
                show.say(f"{cancel}: given back.")
                return
            for _ in range(games):
                before = ledger.spent()
                name = await playing.next_game(transport, patience, seen)
                seen.append(name)
                played, machine = await playing.play(transport, name, wish)
                show.say(f"{name}: {_got(played)}")
                show.say(revealed(machine, trust.partition.edge, charged=ledger.spent() > before))
                if played.resource is not None:
                    break
            show.say(f"Remaining budget in {path}: ε = {epsilon_text(ledger.remaining(), up=False)}.")
    finally:
        await transport.close()


def _got(played: Any) -> str:
    if played.resource is None:
        return "no resource this time."
    said = f"answered {played.answer}" if played.answer else "has not answered yet"
    return f"matched to {played.resource}, which {said}."


@app.command(
    "resource",
    help="Serve resources: show their certificates, and print the position that was sealed to each.",
    epilog="Example: palmatch live resource keys/gateway.json --trust keys/trust.json --hub ws://127.0.0.1:8765/bus",
)
def resource(
    keys: Annotated[Path, typer.Argument(help="The gateway's keys, from the operator.", show_default=False)],
    trust: Trust,
    hub: HubAddress = "",
    broker: Broker = "",
    passwords: Passwords = None,
    allow_plain: AllowPlain = False,
    arrivals: Annotated[int | None, typer.Option("--arrivals", help="Stop after so many.", min=1)] = None,
) -> None:
    """Serve resources."""
    _need_extra()
    _run(_serve_resource(keys, trust, arrivals, (hub, broker, passwords, allow_plain)))


async def _serve_resource(keys_file: Path, trust_file: Path, most: int | None, where: Where) -> None:
    from palmatch.live.resource import Arrival, Gateway, load_gateway
    from palmatch.live.transport import Credentials
    from palmatch.live.trust import load_trust

    keys, trust = load_gateway(keys_file), load_trust(trust_file)
    credentials = Credentials("resource", keys.signer, certificates=tuple(keys.certificates.values()))
    transport = await _connected(*where, "gateway", credentials)
    coming: asyncio.Queue[Arrival] = asyncio.Queue()
    await Gateway(transport, trust, keys, coming.put_nowait).start()
    show.say(f"Serving {show.counted(len(keys.certificates), 'resource')}.")
    served = 0
    while most is None or served < most:
        arrival = await coming.get()
        served += 1
        show.say(f"{arrival.game}: {arrival.resource} goes to {arrival.position[0]:.6f},{arrival.position[1]:.6f}")
    # The answer to the last one is still to be sent.
    await asyncio.sleep(0.5)
    await transport.close()


@app.command(
    "issuer",
    help="Give each registered member one blind token for each game.",
    epilog="Example: palmatch live issuer keys --port 8766 --broker mqtts://city.example --passwords passwords",
)
def issuer_command(
    folder: Folder,
    host: Annotated[str, typer.Option("--host", help="Where it listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Its port.")] = 8766,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="PEM file for TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM file of the certificate's key.")] = None,
    hub: HubAddress = "",
    broker: Broker = "",
    passwords: Passwords = None,
    allow_plain: AllowPlain = False,
) -> None:
    """Run the issuer."""
    _need_extra()
    files = [None if path is None else str(path) for path in (certificate, key)]
    _run(_serve_issuer(folder, (host, port, files), (hub, broker, passwords, allow_plain)))


async def _serve_issuer(folder: Path, listening: tuple[str, int, list[str | None]], where: Where) -> None:
    from palmatch.live.issuer import Issuer
    from palmatch.live.keys import Signer, load_secret
    from palmatch.live.service import Announcer, read_members
    from palmatch.live.transport import Credentials, Hub
    from palmatch.live.trust import load_trust

    signer = Signer(load_secret(folder / "issuer.key"))
    trust, books = load_trust(folder / "trust.json"), Issuer(folder / "issuer.db", signer)
    books.register(read_members(folder / "members.txt"))
    transport = await _connected(*where, "issuer", Credentials("issuer", signer))
    host, port, (certificate, key) = listening
    server = Hub(trust)
    address = await server.start(
        host, port, certificate=certificate, key=key, routes=[books.route()], allow_plain=bool(where[-1])
    )
    await Announcer(transport, books, trust).start()
    show.say(f"Tokens are at {re.sub('^ws', 'http', address).rsplit('/', 1)[0]}/token.")
    await asyncio.Event().wait()


@app.command(
    "witness",
    help="Publish what the board has said, so that a board that says two different things is found out.",
    epilog="Example: palmatch live witness keys/witness-w.key --trust keys/trust.json --hub ws://127.0.0.1:8765/bus",
)
def witness_command(
    key: Annotated[Path, typer.Argument(help="The witness's key; its name is that of the file.", show_default=False)],
    trust: Trust,
    hub: HubAddress = "",
    broker: Broker = "",
    passwords: Passwords = None,
    allow_plain: AllowPlain = False,
) -> None:
    """Run a witness."""
    _need_extra()
    _run(_serve_witness(key, trust, (hub, broker, passwords, allow_plain)))


async def _serve_witness(key: Path, trust_file: Path, where: Where) -> None:
    from palmatch.live.keys import Signer, load_secret
    from palmatch.live.service import run_witness
    from palmatch.live.transport import Credentials
    from palmatch.live.trust import load_trust
    from palmatch.live.witness import Witness

    name, signer, trust = key.stem.removeprefix("witness-"), Signer(load_secret(key)), load_trust(trust_file)
    transport = await _connected(*where, name, Credentials("witness", signer, name))
    show.say(f"Watching the board as {name}.")
    await run_witness(Witness(name, signer, trust.board), [transport])


# --- what the subcommands share ------------------------------------------------------------------------------------


def _need_extra() -> None:
    """Say in one sentence what is missing where the extra is not installed."""
    try:
        import cbor2
        import cryptography
        import gmqtt
        import msgspec
        import starlette
        import uvicorn
        import websockets
    except ImportError as error:
        raise InputError(f"The live runtime needs an extra ({error.name}): pip install 'palmatch[live]'.") from None
    del cbor2, cryptography, gmqtt, msgspec, starlette, uvicorn, websockets


def _run(service: Coroutine[Any, Any, None]) -> None:
    from palmatch.live.logs import set_up

    set_up()
    asyncio.run(service)


async def _connected(
    hub: str,
    broker: str,
    passwords: Path | None,
    allow_plain: bool,
    user: str,
    credentials: Credentials | None = None,
) -> Transport:
    """Connect to the hub or to the broker; a device has no user."""
    from palmatch.live.transport import connect

    if bool(hub) == bool(broker):
        raise InputError("Name one of --hub ws://… and --broker mqtts://….")
    if hub:
        return await connect(hub, credentials=credentials, allow_plain=allow_plain)
    password = _password(passwords, user) if user else None
    return await connect(broker, user=user or None, password=password, allow_plain=allow_plain)


def _password(path: Path | None, user: str) -> str:
    """Return a user's password, from the file that goes with the broker's configuration."""
    if path is None:
        raise InputError("A broker asks for a password: name the file that was written with its configuration.")
    try:
        known = dict(line.split(" ", 1) for line in path.read_text().splitlines())
    except (OSError, ValueError):
        raise InputError(f"{path}: expected lines of a user and a password.") from None
    if user not in known:
        raise InputError(f"{path}: found no user {user!r}; write the broker's configuration again.")
    return known[user]


def _seconds(text: str, option: str) -> float:
    found = re.fullmatch(r"([0-9.]+) *(ms|s|m|h)?", text.strip())
    with suppress(ValueError):
        if found is not None and float(found[1]) > 0:
            return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2] or "s"]
    raise InputError(f"Expected a time such as 30s, 500ms or 2m for {option}, got {text!r}.")


def _pair(text: str, option: str) -> tuple[float, float]:
    parts = text.split(",")
    if len(parts) != 2:
        raise InputError(f"Expected LAT,LON for {option}, such as 40.75,-73.99.")
    return _number(parts[0], option), _number(parts[1], option)


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"Expected numbers for {option}, with commas between them.") from None


def _fresh_request() -> str:
    """Return a name for a request that was given none: each run of the command is a new wish."""
    import secrets

    return secrets.token_hex(8)
