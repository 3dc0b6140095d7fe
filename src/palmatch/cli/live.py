"""palmatch live: matching among devices, each with its own position and its own budget; no server is trusted with them.

The runtime is an extra, imported when a subcommand runs, so that the help works without it.
"""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import typer

from palmatch.cli import options, show
from palmatch.errors import InputError

HELP = "Match live: every agent on its own device, over a network, with no server to trust."

# How devices play, and what carries the messages.
Protocols: TypeAlias = Literal["report", "bids", "rounds"]
Transports: TypeAlias = Literal["hub", "mqtt"]
HandOvers: TypeAlias = Literal["position", "none"]

NotNegative: TypeAlias = Annotated[float, typer.Option(min=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Where the messages go.

    Attributes
    ----------
    hub:
        A hub, ws:// or wss://.
    broker:
        An MQTT broker, mqtt:// or mqtts://.
    passwords:
        The file of passwords that goes with a broker.
    allow_plain:
        Allow connections without TLS to other machines.
    ca:
        PEM file of a private authority, in place of the system's, for TLS connections that this makes.
    """

    PANEL: ClassVar = "Network"
    hub: str = ""
    broker: str = ""
    passwords: Path | None = None
    allow_plain: bool = False
    ca: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a service listens, and the certificate that it shows there.

    Attributes
    ----------
    host:
        Where it listens.
    port:
        Its port.
    certificate:
        PEM file for TLS.
    key:
        PEM file of the certificate's key.
    """

    PANEL: ClassVar = "Network"
    host: str = "127.0.0.1"
    port: int = 8765
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """How a party tells of what happens.

    Attributes
    ----------
    json:
        Write one JSON object for each event to the output, and words to the standard error.
    metrics:
        HOST:PORT for /metrics and /healthz; none unless given.
    """

    PANEL: ClassVar = None
    json: bool = False
    metrics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameOptions:
    """How a board plays game after game.

    Attributes
    ----------
    protocol:
        One report each (hungarian-once), bids (once), or rounds (palma).
    every:
        From one opening to the next.
    joining:
        How long devices can join.
    slot:
        Length of a slot; unless given, 5s, or longer for many resources.
    slots:
        Most slots of a game of bids or rounds.
    epsilon:
        The ε that devices may have.
    interest:
        Nearest resources that count for an agent; all of them.
    games:
        The number of games after which it stops.
    hold:
        How long a matched resource is not offered again.
    grace:
        The same, if it never got a hand-over.
    """

    PANEL: ClassVar = None
    protocol: Protocols = "report"
    every: str = "30s"
    joining: str = "10s"
    slot: str = ""
    slots: options.Positive = 200
    epsilon: str = "0,0.5,1,2,4"
    interest: options.MaybePositive = None
    games: options.MaybePositive = None
    hold: str = "15m"
    grace: str = "1m"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """What a device has and may spend, and how long it waits.

    Attributes
    ----------
    ledger:
        Where the budget is kept.
    trust:
        The operator's trust file.
    member:
        The key that the issuer knows.
    epsilon:
        ε of this request (rounds: of each game).
    budget:
        For a new ledger: ε in any window of --per, or of a lifetime.
    per:
        The window of --budget, such as 7d.
    lifetime:
        ε of a lifetime beside --per; 52 windows unless given.
    request:
        A name for this wish; its one report is paid once (rounds: every game). Unless given, that of a run that was cut
        off, or a new one.
    games:
        The number of games in which it waits for a match.
    cancel:
        Give back what it got in this game, and stop.
    patience:
        How long to wait for a game.
    leave:
        Without budget, leave instead of playing ε = 0.
    hand_over:
        none: no resource gets the position, whatever its certificate says.
    issuer:
        The address that the issuer prints, http(s)://HOST/token; the hub's own unless given.
    accept_operator:
        Take the trust file of another operator than so far; charges stay.
    """

    PANEL: ClassVar = None
    ledger: Path
    trust: Path
    member: Path
    epsilon: NotNegative = 1.0
    budget: NotNegative = 10.0
    per: str = ""
    lifetime: Annotated[float | None, typer.Option(min=0)] = None
    request: str = ""
    games: options.Positive = 1
    cancel: str = ""
    patience: str = "2m"
    leave: bool = False
    hand_over: HandOvers = "position"
    issuer: str = ""
    accept_operator: bool = False


def demo(
    *,
    protocol: Protocols = "report",
    transport: Transports = "hub",
    agents: options.Positive = 150,
    faults: Annotated[float, typer.Option(max=0.5)] = 0.0,
    edge: float = 1000.0,
    epsilon: NotNegative = 1.0,
    seed: options.MaybeNatural = None,
    out: Path = Path("live-demo"),
    explain: bool = False,
    json: Path | None = None,
) -> None:
    """Play a morning of a synthetic city: a service (hub, issuer, board, resources), and devices of their own.

    Parameters
    ----------
    protocol:
        One report each (hungarian-once), bids (once), or rounds (palma).
    transport:
        The hub, or Mosquitto.
    agents:
        How many devices.
    faults:
        Chance that a packet is lost, late, doubled; that a device dies.
    epsilon:
        ε of every device.
    out:
        The folder for agents, vehicles and pairs.

    Examples
    --------
    Example: palmatch live demo --protocol bids --seed 1 --json live.json
    """
    show.check_outputs(json=json)
    plan = (protocol, transport, agents, faults, edge, epsilon, seed, show.folder_for(out))
    _services().play_demo(plan, json, explain=explain)


def operator(
    folder: Path,
    *,
    resources: Path | None = None,
    edge: float = 1000.0,
    spacing: float = 100.0,
    origin: options.Origin = None,
    member: options.Names = None,
    add_member: options.Names = None,
    remove_member: options.Names = None,
    certify: Path | None = None,
    valid: options.Positive = 366,
    remove_resource: options.Names = None,
    hand_over: HandOvers | None = None,
    rotate: options.Names = None,
    publish_at: str = "",
) -> None:
    """Make the keys of all parties and the trust file that devices are given, or change one thing later.

    Later it adds or removes members, certifies new resources of a list, removes some, replaces keys, or names the
    address of newer trust files. Each of these changes nothing else.

    Parameters
    ----------
    folder:
        The folder of the operator's keys.
    resources:
        CSV, Parquet or a feed; for new keys.
    member:
        A member's name; repeat it.
    add_member:
        A further member of an operator that has keys, by a name, or by the public key that it shows; repeat it.
    remove_member:
        A member, by its name in the folder or its public key; repeat it.
    certify:
        A resource list: certify those without a certificate, or with one that ends within 90 days.
    valid:
        Days that new certificates are valid for.
    remove_resource:
        A resource whose certificates count no longer; repeat it.
    hand_over:
        What resources are given of their agent: its position (unless told), or none: a code.
    rotate:
        board or issuer: a new key, from the next game on; repeat it.
    publish_at:
        https:// address at which devices find newer trust files.

    Examples
    --------
    Example: palmatch live operator keys --resources vehicles.csv --member alice

    Example: palmatch live operator keys --add-member bob

    Example: palmatch live operator keys --certify vehicles.csv

    Example: palmatch live operator keys --remove-resource v7
    """
    changes = {
        "--add-member": add_member,
        "--remove-member": remove_member,
        "--certify": certify,
        "--remove-resource": remove_resource,
        "--rotate": rotate,
        "--publish-at": publish_at,
    }
    given = [name for name, value in changes.items() if value]
    services = _services()
    from palmatch.device.messages import Partition
    from palmatch.domains.mobility import ORIGIN

    if given and (len(given) > 1 or resources or member):
        raise InputError(f"{given[0]} changes nothing else: leave out all other options that make or change keys.")
    if given:
        show.say(services.change_keys(folder, given[0], changes[given[0]], valid, hand_over))
    elif resources is None:
        raise InputError("New keys need a resource list: --resources FILE (--add-member NAME adds to keys that exist).")
    else:
        place = ORIGIN if origin is None else options.place(origin)
        partition = Partition(edge=edge, origin=place, spacing=spacing)
        show.say(services.make_keys(folder, resources, partition, member or [], hand_over or "position"))


@options.without("broker", "passwords", "ca", "metrics")
def operator_page(
    trust: Path,
    *,
    issuer: str = "",
    budget: NotNegative = 10.0,
    port: int = 8767,
    listening: Listening,
    where: Network,
    telling: Telling,
) -> None:
    """Serve the page by which phones take part, from an address of the operator's own.

    The server of a device's code is trusted like its maker: never serve it from the address of a board or a hub.

    Parameters
    ----------
    trust:
        The operator's trust file.
    issuer:
        The address that the issuer prints, http(s)://HOST/token; the hub's own unless given.
    budget:
        ε of a phone's lifetime.
    port:
        Its port.

    Examples
    --------
    Example: palmatch live operator page keys/trust.json --hub wss://hub.example/bus --host 0.0.0.0
    --certificate page.pem --key page.key
    """
    if not where.hub.startswith(("ws://", "wss://")):
        raise InputError(f"Expected --hub ws://… or wss://…, got {where.hub!r}: a phone reaches no broker.")
    services = _services()
    told = (where.hub, issuer or _issuer_of(where.hub), budget)
    where_to = replace(listening, port=port)
    services.serve(services.serve_page(trust, told, where_to, telling, allow_plain=where.allow_plain))


@options.without("hub")
def board(
    folder: Path,
    *,
    resources: Path | None = None,
    chosen: GameOptions,
    listening: Listening,
    where: Network,
    telling: Telling,
    write_mosquitto_conf: Path | None = None,
) -> None:
    """Open games, match what devices report, publish results; with a hub and the issuer, unless told otherwise.

    Parameters
    ----------
    folder:
        The folder of the operator's keys.
    resources:
        CSV, Parquet or a feed (GBFS, OCPI); read for each game.
    write_mosquitto_conf:
        Write a broker's configuration into a folder, and stop.

    Examples
    --------
    Example: palmatch live board keys --resources vehicles.csv --every 30s
    """
    services = _services()
    if write_mosquitto_conf is not None:
        services.write_mosquitto(write_mosquitto_conf, folder, listening, allow_plain=where.allow_plain)
        return
    if resources is None:
        raise InputError("The board needs a resource list: --resources FILE.")
    services.serve(services.serve_board(folder, resources, chosen, listening, where, telling))


@options.without("passwords", "metrics")
def device(*, at: str, chosen: DeviceOptions, where: Network, telling: Telling) -> None:
    """Take part in the next game, with a position and a budget that stay on this machine.

    The exit status is 0 where it was matched, 3 where it was not, 4 where it refused, 5 where there was no game.

    Parameters
    ----------
    at:
        LAT,LON in degrees, or - or @FILE to read them: other users see command lines.

    Examples
    --------
    Example: palmatch live device --at 40.75,-73.99 --epsilon 1 --ledger alice.ledger --trust keys/trust.json
    --member keys/member-alice.key --hub ws://127.0.0.1:8765/bus
    """
    services = _services()
    issuer = chosen.issuer or (_issuer_of(where.hub) if where.hub else "")
    if not issuer:
        raise InputError("With a broker the device needs the address that the issuer prints: --issuer https://…/token.")
    playing = services.serve_device(_position(at), replace(chosen, issuer=issuer), where, telling)
    raise typer.Exit(services.run(playing))


def resource(
    keys: Path, *, trust: Path, where: Network, telling: Telling, arrivals: options.MaybePositive = None
) -> None:
    """Serve resources: show their certificates, and print the position, or the code, that was sealed to each.

    Parameters
    ----------
    keys:
        The gateway's keys, from the operator.
    trust:
        The operator's trust file.
    arrivals:
        The number of arrivals after which it stops.

    Examples
    --------
    Example: palmatch live resource keys/gateway.json --trust keys/trust.json --hub ws://127.0.0.1:8765/bus
    """
    services = _services()
    services.serve(services.serve_resource(keys, trust, arrivals, where, telling))


def issuer(folder: Path, *, port: int = 8766, listening: Listening, where: Network, telling: Telling) -> None:
    """Give each registered member one blind token for each game.

    Parameters
    ----------
    folder:
        The folder of the operator's keys.
    port:
        Its port.

    Examples
    --------
    Example: palmatch live issuer keys --port 8766 --broker mqtts://city.example --passwords passwords
    """
    services = _services()
    services.serve(services.serve_issuer(folder, replace(listening, port=port), where, telling))


SUBCOMMANDS = {
    "demo": demo,
    "operator": operator,
    "operator page": operator_page,
    "board": board,
    "device": device,
    "resource": resource,
    "issuer": issuer,
}


def _issuer_of(hub: str) -> str:
    """Return the address of the issuer that a hub answers for."""
    return re.sub(r"^ws", "http", hub).rsplit("/", 1)[0] + "/token"


def _services() -> Any:
    """Import what runs, or say in one sentence what is missing where the extra is not installed."""
    try:
        return import_module("palmatch.cli.live_services")
    except ImportError as error:
        raise InputError(f"The live runtime needs an extra ({error.name}): pip install 'palmatch[live]'.") from None


def seconds_of(text: str, option: str) -> float:
    """Return the seconds of a time such as 30s, 500ms or 2m."""
    found = re.fullmatch(r"([0-9.]+) *(ms|s|m|h|d)?", text.strip())
    with suppress(ValueError):
        if found is not None and float(found[1]) > 0:
            return float(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[found[2] or "s"]
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
    with suppress(ValueError):
        latitude, longitude = map(float, text.split(","))
        if abs(latitude) <= 90 and abs(longitude) <= 180:
            return latitude, longitude
    raise InputError("Expected --at LAT,LON in degrees, such as 40.75,-73.99, or - or @FILE to read them.")
