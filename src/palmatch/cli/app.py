"""The words of the command, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import palmatch
from palmatch.cli import audit, bench, compare, data, day, demo, frontier, ledger, match, plan, reproduce

app = typer.Typer(
    name="palmatch",
    help="Match agents to resources without learning what the agents want.",
    epilog="Start with: palmatch demo --out demo, then open demo/report.html.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for words in (demo, match, compare, frontier, plan, audit, bench, day):
    app.command(words.NAME, help=words.HELP, epilog=words.EXAMPLES)(words.command)
app.add_typer(data.app, name=data.NAME)
app.add_typer(ledger.app, name=ledger.NAME)
app.add_typer(reproduce.app, name=reproduce.NAME)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"palmatch {palmatch.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    pass
