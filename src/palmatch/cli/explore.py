"""palmatch explore: the explorer in the browser, served on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from palmatch.cli import show
from palmatch.data.points import check_not_swapped, read_points
from palmatch.errors import InputError

NAME = "explore"
HELP = "Open the explorer in the browser: watch games round by round, move sliders, compare methods."
EXAMPLES = "Example: palmatch explore\n\nExample: palmatch explore agents.csv vehicles.csv --no-open --port 8765"


def command(
    agents: Annotated[Path | None, typer.Argument(help="Agents (id, lat, lon); a made-up city unless given.")] = None,
    vehicles: Annotated[Path | None, typer.Argument(help="Vehicles, in the same form.")] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="The port; any free one for 0.", min=0, max=65535)] = 8765,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    hub: Annotated[str | None, typer.Option("--hub", help="Watch a running board by its address.")] = None,
) -> None:
    """Serve the page until Ctrl-C."""
    try:
        from palmatch.live.transport.hub import Hub
        from palmatch.web.games import LiveGames
        from palmatch.web.scenes import Scenes, Source
        from palmatch.web.server import Explorer
    except ImportError as error:
        raise InputError(f"The explorer needs an extra ({error.name}): pip install 'palmatch[live]'.") from None
    if (agents is None) != (vehicles is None):
        raise InputError("Give both files, agents and vehicles, or none for the made-up city.")
    source = Source()
    if agents is not None and vehicles is not None:
        people, cars = read_points(agents, role="agents"), read_points(vehicles, role="resources")
        check_not_swapped(people, cars)
        source = Source(people, cars, f"{agents.name} and {vehicles.name}")
    scenes = Scenes(source)

    async def serve() -> None:
        bus = Hub()
        games = LiveGames(bus, scenes)
        explorer = Explorer(scenes, hub=hub, games=games)
        address = await bus.start(host, port, routes=explorer.routes())
        page = address.replace("ws", "http", 1).rsplit("/", 1)[0] + "/"
        show.say(f"The explorer is at {page} (Ctrl-C ends it).")
        if not no_open:
            webbrowser.open(page)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await games.close()
        await bus.stop()

    asyncio.run(serve())
