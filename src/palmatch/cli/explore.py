"""palmatch explore: the explorer in the browser, served on this machine."""

from __future__ import annotations

import asyncio
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from palmatch.cli import options, show
from palmatch.data.geojson import read_streets
from palmatch.domains.mobility import metres_of, middle_of, read_points
from palmatch.errors import InputError


def explore(
    agents: Path | None = None,
    vehicles: Path | None = None,
    *,
    trips: Path | None = None,
    at: str | None = None,
    streets: Path | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8770,
    allow_plain: bool = False,
    no_open: bool = False,
    hub: str | None = None,
) -> None:
    """Open the explorer in the browser: watch games round by round, move sliders, compare methods.

    Parameters
    ----------
    agents:
        Agents (id, lat, lon); a synthetic city unless given.
    vehicles:
        Vehicles, in the same form.
    trips:
        Taxi trips with coordinates instead.
    at:
        Which half minute of --trips; its first complete one unless given.
    streets:
        Street lines (GeoJSON) to draw under agents and vehicles.
    host:
        The address to listen on.
    port:
        The port; any free one for 0.
    allow_plain:
        Let --host be other than this machine: positions then travel without TLS.
    no_open:
        Do not open a browser.
    hub:
        Watch a running board by its address.

    Examples
    --------
    Example: palmatch explore

    Example: palmatch explore agents.csv vehicles.csv --no-open --port 8770

    Example: palmatch explore --trips trips.csv --at "2016-01-15 08:00"
    """
    try:
        from palmatch.live.transport.hub import Hub
        from palmatch.web.games import LiveGames
        from palmatch.web.scenes import Scenes, Source
        from palmatch.web.server import Explorer, is_own_page
    except ImportError as error:
        raise InputError(f"The explorer needs an extra ({error.name}): pip install 'palmatch[live]'.") from None
    if (agents is None) != (vehicles is None):
        raise InputError("Give both files, agents and vehicles, or none for the synthetic city.")
    if hub is not None and not hub.startswith(("ws://", "wss://")):
        raise InputError(f"--hub {hub} is not the address of a hub: expected ws://… or wss://….")
    if at is not None and trips is None:
        raise InputError("--at goes with --trips FILE: the page itself has a slider for the synthetic city's hour.")
    if trips is not None and agents is not None:
        raise InputError("Give either agents and vehicles or --trips, not both.")
    source = Source() if trips is None else Source.of_trips(trips, None if at is None else options.moment(at))
    if agents is not None and vehicles is not None:
        agent_points, cars = read_points(agents, role="agents"), read_points(vehicles, role="resources")
        metres_of(agent_points, *middle_of(cars))
        source = Source(agent_points, cars, f"{agents.name} and {vehicles.name}")
    if streets is not None:
        source = replace(source, streets=tuple(read_streets(streets)))
    scenes = Scenes(source)

    async def serve() -> None:
        bus = Hub()
        games = LiveGames(bus, scenes)
        explorer = Explorer(scenes, hub=hub, games=games)
        address = await bus.start(
            host,
            port,
            allow_plain=allow_plain,
            routes=explorer.routes(),
            middleware=explorer.middleware(host),
            allowed=lambda path, headers: is_own_page(path, headers, host),
        )
        page = address.replace("ws", "http", 1).rsplit("/", 1)[0] + "/"
        show.say(f"The explorer is at {page} (Ctrl-C ends it).")
        if not no_open:
            webbrowser.open(page)
        try:
            await asyncio.Event().wait()
        finally:
            await games.close()
            explorer.close()
            await bus.stop()

    asyncio.run(serve())
