"""palmatch live: matching among devices, each with its own position and its own budget; no server is trusted with them.

The runtime is an extra, imported when a subcommand runs, so that the help works without it.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from palmatch.cli import options, show
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs, folder_for
from palmatch.errors import InputError

NAME = "live"
HELP = "Match live: every agent on its own device, over a network, with no server to trust."

app = typer.Typer(
    name=NAME,
    help=HELP,
    epilog="Start with: palmatch live demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)


class Protocols(StrEnum):
    """How devices play."""

    report = "report"
    bids = "bids"
    rounds = "rounds"


class Transports(StrEnum):
    """What carries the messages."""

    hub = "hub"
    mqtt = "mqtt"


class HandOvers(StrEnum):
    """What a resource is given of the agent that it serves."""

    position = "position"
    none = "none"


Protocol: TypeAlias = Annotated[
    Protocols, option("--protocol", "One report each (hungarian-once), bids (once), or rounds (palma).")
]
Trust: TypeAlias = Annotated[Path, option("--trust", "The operator's trust file.", show_default=False, dir_okay=False)]
HubAddress: TypeAlias = Annotated[str, option("--hub", "A hub, ws:// or wss://.", show_default=False)]
Broker: TypeAlias = Annotated[str, option("--broker", "An MQTT broker, mqtt:// or mqtts://.", show_default=False)]
Passwords: TypeAlias = Annotated[
    Path | None, option("--passwords", "The file of passwords that goes with a broker.", show_default=False)
]
AllowPlain: TypeAlias = Annotated[bool, option("--allow-plain", "Allow connections without TLS to other machines.")]
Authority: TypeAlias = Annotated[
    Path | None,
    option("--ca", "PEM file of a private authority, in place of the system's, for TLS connections that this makes."),
]
Folder: TypeAlias = Annotated[Path, typer.Argument(help="The folder of the operator's keys.", show_default=False)]
Certificate: TypeAlias = Annotated[Path | None, option("--certificate", "PEM file for TLS.")]
Key: TypeAlias = Annotated[Path | None, option("--key", "PEM file of the certificate's key.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where the messages go."""

    hub: HubAddress = ""
    broker: Broker = ""
    passwords: Passwords = None
    allow_plain: AllowPlain = False
    ca: Authority = None


@app.command(
    "demo",
    help="Play a morning of a synthetic city: a service (hub, issuer, board, resources), and devices of their own.",
    epilog="Example: palmatch live demo --protocol bids --seed 1 --json live.json",
)
def demo(
    protocol: Protocol = Protocols.report,
    transport: Annotated[Transports, option("--transport", "The hub, or Mosquitto.")] = Transports.hub,
    agents: Annotated[int, option("--agents", "How many devices.", min=1)] = 150,
    faults: Annotated[
        float, option("--faults", "Chance that a packet is lost, late, doubled; that a device dies.", max=0.5)
    ] = 0.0,
    edge: options.Edge = 1000.0,
    epsilon: Annotated[float, option("--epsilon", "ε of every device.", min=0)] = 1.0,
    seed: options.SecretSeed = None,
    out: Annotated[Path, option("--out", "The folder for agents, vehicles and pairs.")] = Path("live-demo"),
    json: options.Json = None,
) -> None:
    """Play the demo."""
    need_extra()
    from palmatch.cli.live_demo import figures, tell
    from palmatch.live.demo import Plan, play

    check_outputs(json=json)
    plan = Plan(protocol.value, transport.value, agents, faults, edge, epsilon, seed, folder_for(out))
    with show.progress_bar("live") as progress:
        played = play(plan, progress)
    if show.write_json(json, figures(plan, played)):
        tell(plan, played)


@app.command(
    "operator",
    help=(
        "Make the keys of all parties and the trust file that devices are given; or, later, add or remove members, "
        "certify new resources of a list, or remove some. Each of these changes nothing else."
    ),
    epilog=(
        "Example: palmatch live operator keys --resources vehicles.csv --member alice\n\n"
        "Example: palmatch live operator keys --add-member bob\n\n"
        "Example: palmatch live operator keys --certify vehicles.csv\n\n"
        "Example: palmatch live operator keys --remove-resource v7"
    ),
)
def operator(
    folder: Folder,
    resources: Annotated[
        Path | None, option("--resources", "CSV, Parquet or GBFS; for new keys.", show_default=False)
    ] = None,
    edge: options.Edge = 1000.0,
    spacing: options.Spacing = 100.0,
    origin: options.Origin = options.ORIGIN,
    member: Annotated[list[str] | None, option("--member", "A member's name; repeat it.")] = None,
    add_member: Annotated[
        list[str] | None, option("--add-member", "A further member of an operator that has keys; repeat it.")
    ] = None,
    remove_member: Annotated[
        list[str] | None,
        typer.Option("--remove-member", help="A member, by its name in the folder or its public key; repeat it."),
    ] = None,
    certify: Annotated[
        Path | None,
        typer.Option(
            "--certify",
            help="A resource list: certify those without a certificate, or with one that ends within 90 days.",
            show_default=False,
        ),
    ] = None,
    valid: Annotated[int, typer.Option("--valid", help="Days that new certificates are valid for.", min=1)] = 366,
    remove_resource: Annotated[
        list[str] | None,
        typer.Option("--remove-resource", help="A resource whose certificates count no longer; repeat it."),
    ] = None,
    hand_over: Annotated[
        HandOvers | None,
        option("--hand-over", "What resources are given of their agent: its position (unless told), or none: a code."),
    ] = None,
) -> None:
    """Write keys."""
    need_extra()
    from palmatch.cli import live_operator as keys
    from palmatch.device import messages as m

    changes = {
        "--add-member": add_member,
        "--remove-member": remove_member,
        "--certify": certify,
        "--remove-resource": remove_resource,
    }
    given = [name for name, value in changes.items() if value]
    if given and (len(given) > 1 or resources or member):
        raise InputError(f"{given[0]} changes nothing else: leave out all other options that make or change keys.")
    if add_member:
        keys.add(folder, add_member)
    elif remove_member:
        keys.remove(folder, remove_member)
    elif certify is not None:
        keys.certify_listed(folder, certify, valid, None if hand_over is None else hand_over.value)
    elif remove_resource:
        keys.remove_certified(folder, remove_resource)
    elif resources is None:
        raise InputError("New keys need a resource list: --resources FILE (--add-member NAME adds to keys that exist).")
    else:
        partition = m.Partition(edge=edge, origin=options.place(origin), spacing=spacing)
        keys.make(folder, resources, partition, member or (), (hand_over or HandOvers.position).value)


@app.command(
    "board",
    help="Open games, match what devices report, publish results; with a hub and the issuer, unless told otherwise.",
    epilog="Example: palmatch live board keys --resources vehicles.csv --every 30s",
)
def board(
    folder: Folder,
    resources: Annotated[
        Path | None, option("--resources", "CSV, Parquet or GBFS vehicle_status.json; read for each game.")
    ] = None,
    protocol: Protocol = Protocols.report,
    every: Annotated[str, option("--every", "From one opening to the next.")] = "30s",
    joining: Annotated[str, option("--joining", "How long devices can join.")] = "10s",
    slot: Annotated[str, option("--slot", "Length of a slot; unless given, 5s, or longer for many resources.")] = "",
    slots: Annotated[int, option("--slots", "Most slots of a game of bids or rounds.", min=1)] = 200,
    epsilon: Annotated[str, option("--epsilon", "The ε that devices may have.")] = "0,0.5,1,2,4",
    interest: Annotated[
        int | None, option("--interest", "Nearest resources that count for an agent; all of them.", min=1)
    ] = None,
    games: Annotated[int | None, option("--games", "Stop after so many games.", min=1)] = None,
    hold: Annotated[str, option("--hold", "How long a matched resource is not offered again.")] = "15m",
    grace: Annotated[str, option("--grace", "The same, if it never got a hand-over.")] = "1m",
    host: Annotated[str, option("--host", "Where the hub listens.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "The hub's port, or the broker's for its configuration.")] = 8765,
    certificate: Certificate = None,
    key: Key = None,
    broker: Broker = "",
    passwords: Passwords = None,
    allow_plain: AllowPlain = False,
    ca: Authority = None,
    write_mosquitto_conf: Annotated[
        Path | None, option("--write-mosquitto-conf", "Write a broker's configuration into a folder, and stop.")
    ] = None,
) -> None:
    """Run the board."""
    need_extra()
    from palmatch.cli import live_services as services

    if write_mosquitto_conf is not None:
        services.write_mosquitto(write_mosquitto_conf, folder, host, port, certificate, key, allow_plain)
        return
    if resources is None:
        raise InputError("The board needs a resource list: --resources FILE.")
    from palmatch.device.state import LEAST_MARGIN
    from palmatch.live.service import Schedule

    length = _seconds(slot, "--slot") if slot else None
    if length is not None and length < LEAST_MARGIN:
        raise InputError(f"Expected --slot of at least {LEAST_MARGIN}s, got {slot}: devices refuse shorter ones.")
    schedule = Schedule(
        protocol.value,
        tuple(sorted(options.numbers(epsilon, "--epsilon"))),
        every=_seconds(every, "--every"),
        joining=_seconds(joining, "--joining"),
        preparing=2.0,
        slot=length,
        slots=slots,
        interest=interest,
    )
    hub = (host, port, certificate, key, allow_plain)
    limits = (games, _seconds(hold, "--hold"), _seconds(grace, "--grace"))
    where = Network(broker=broker, passwords=passwords, allow_plain=allow_plain, ca=ca)
    services.run(services.serve_board(folder, resources, schedule, limits, hub, where))


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
        str,
        option(
            "--at", "LAT,LON in degrees, or - or @FILE to read them: other users see command lines.", show_default=False
        ),
    ],
    ledger: Annotated[Path, option("--ledger", "Where the budget is kept.", show_default=False)],
    trust: Trust,
    member: Annotated[Path, option("--member", "The key that the issuer knows.", show_default=False)],
    epsilon: Annotated[float, option("--epsilon", "ε of this request (rounds: of each game).", min=0)] = 1.0,
    budget: Annotated[float, option("--budget", "ε of a lifetime, for a new ledger.", min=0)] = 10.0,
    request: Annotated[
        str,
        option(
            "--request",
            "A name for this wish; its one report is paid once (rounds: every game). Unless given, that of a run that "
            "was cut off, or a new one.",
        ),
    ] = "",
    games: Annotated[int, option("--games", "Wait for a match over so many games.", min=1)] = 1,
    cancel: Annotated[str, option("--cancel", "Give back what it got in this game, and stop.")] = "",
    patience: Annotated[str, option("--patience", "How long to wait for a game.")] = "2m",
    leave: Annotated[bool, option("--leave", "Without budget, leave instead of playing ε = 0.")] = False,
    hand_over: Annotated[
        HandOvers,
        option("--hand-over", "none: no resource gets the position, whatever its certificate says."),
    ] = HandOvers.position,
    issuer: Annotated[
        str, option("--issuer", "The address that the issuer prints, http(s)://HOST/token; the hub's own unless given.")
    ] = "",
    hub: HubAddress = "",
    broker: Broker = "",
    allow_plain: AllowPlain = False,
    ca: Authority = None,
) -> None:
    """Take part."""
    need_extra()
    from palmatch.cli import live_services as services
    from palmatch.live.session import Wish

    where = issuer or (re.sub(r"^ws", "http", hub).rsplit("/", 1)[0] + "/token" if hub else "")
    if not where:
        raise InputError("With a broker the device needs the address that the issuer prints: --issuer https://…/token.")
    wish = Wish(request, _position(at), epsilon, "leave" if leave else "zero")
    told = (ledger, budget, trust, member, where, cancel, hand_over.value)
    through = Network(hub=hub, broker=broker, allow_plain=allow_plain, ca=ca)
    services.run(services.serve_device(wish, told, games, _seconds(patience, "--patience"), through))


@app.command(
    "resource",
    help="Serve resources: show their certificates, and print the position, or the code, that was sealed to each.",
    epilog="Example: palmatch live resource keys/gateway.json --trust keys/trust.json --hub ws://127.0.0.1:8765/bus",
)
@options.sharing
def resource(
    *,
    keys: Annotated[Path, typer.Argument(help="The gateway's keys, from the operator.", show_default=False)],
    trust: Trust,
    where: Network,
    arrivals: Annotated[int | None, option("--arrivals", "Stop after so many.", min=1)] = None,
) -> None:
    """Serve resources."""
    need_extra()
    from palmatch.cli import live_services as services

    services.run(services.serve_resource(keys, trust, arrivals, where))


@app.command(
    "issuer",
    help="Give each registered member one blind token for each game.",
    epilog="Example: palmatch live issuer keys --port 8766 --broker mqtts://city.example --passwords passwords",
)
@options.sharing
def issuer_command(
    *,
    folder: Folder,
    host: Annotated[str, option("--host", "Where it listens.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "Its port.")] = 8766,
    certificate: Certificate = None,
    key: Key = None,
    where: Network,
) -> None:
    """Run the issuer."""
    need_extra()
    from palmatch.cli import live_services as services

    files = [None if path is None else str(path) for path in (certificate, key)]
    services.run(services.serve_issuer(folder, (host, port, files), where))


def need_extra() -> None:
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


def _seconds(text: str, option: str) -> float:
    found = re.fullmatch(r"([0-9.]+) *(ms|s|m|h)?", text.strip())
    with suppress(ValueError):
        if found is not None and float(found[1]) > 0:
            return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2] or "s"]
    raise InputError(f"Expected a time such as 30s, 500ms or 2m for {option}, got {text!r}.")


def _position(text: str) -> tuple[float, float]:
    """Return the place that --at names, or that is on the standard input (-) or in a file (@FILE).

    A refusal does not repeat it, because it is private.
    """
    if text == "-":
        text = sys.stdin.readline()
    elif text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeError):
            raise InputError(f"{text[1:]}: cannot read a position from this file.") from None
    try:
        latitude, longitude = map(float, text.split(","))
        if abs(latitude) <= 90 and abs(longitude) <= 180:
            return latitude, longitude
    except ValueError:
        pass
    raise InputError("Expected --at LAT,LON in degrees, such as 40.75,-73.99, or - or @FILE to read them.")
