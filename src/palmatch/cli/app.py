"""The subcommands, put together; each one's module is imported when it is used, so that the command starts at once."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import palmatch

# In the order of the help. The module `palmatch.cli.NAME` has `command`, HELP and EXAMPLES, or an `app` of its own.
COMMANDS = (
    "demo",
    "examples",
    "match",
    "compare",
    "limit",
    "plan",
    "types",
    "audit",
    "day",
    "ledger",
    "live",
    "reproduce",
    "explore",
)


class _LazyGroup(TyperGroup):
    """The subcommands by name: only the one that is asked for is imported, or all of them for the help."""

    def __init__(self, **settings: Any) -> None:
        # The names are all that the listing and the "did you mean" of a misspelt one ask for.
        super().__init__(**settings | {"commands": dict.fromkeys(COMMANDS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the same in every context
        return subcommand(cmd_name) if cmd_name in COMMANDS else None

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        # By their names alone: for the line of help of each its module would be imported, seconds for all of them.
        ctx.command = TyperGroup(params=self.params, commands={name: TyperCommand(name) for name in COMMANDS})
        return ctx.command.shell_complete(ctx, incomplete)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as mistake:
            _say_what_was_found(mistake)
            raise


def _say_what_was_found(mistake: typer.BadParameter) -> None:
    """Name the text that was given for a number and what to write instead: the library says only that it is none."""
    errors: list[dict[str, Any]] = getattr(mistake.__cause__, "errors", list)()
    expected = {"float_parsing": "one number, such as 0.5 or 1000", "int_parsing": "one whole number, such as 20"}
    if errors and errors[0]["type"] in expected:
        wanted = expected[errors[0]["type"]]
        mistake.message = f"found {errors[0]['input']!r}, expected {wanted}; write no unit and no comma."


app = typer.Typer(
    name="palmatch",
    help="Match agents to resources without learning what the agents want.",
    epilog="Start with: palmatch demo --out demo, then open demo/report.html.",
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def subcommand(name: str) -> Any:
    """Return a subcommand, ready to be run."""
    module = import_module(f"palmatch.cli.{name}")
    if hasattr(module, "app"):
        group = typer.main.get_command(module.app)
        for command in group.commands.values():  # type: ignore[attr-defined]
            command.params.append(_quiet())
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    alone.command(name, help=module.HELP, epilog=module.EXAMPLES)(module.command)
    command = typer.main.get_command(alone)
    command.params.append(_quiet())
    return command


def _quiet() -> Any:
    """Return --quiet, which every subcommand has."""
    alone = typer.Typer(add_completion=False)
    alone.command()(_with_quiet)
    return next(option for option in typer.main.get_command(alone).params if option.name == "quiet")


def _be_quiet(wanted: bool) -> None:
    import_module("palmatch.cli.show").be_quiet(wanted)


def _with_quiet(
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            callback=_be_quiet,
            expose_value=False,
            help="Print nothing but errors, and what is asked for on the output with -.",
            rich_help_panel="Common",
        ),
    ] = False,
) -> None:
    pass


def command_words() -> list[tuple[str, ...]]:
    """Return what can be typed after `palmatch`: ("match",), ("ledger", "show") and so on."""
    words: list[tuple[str, ...]] = []
    for name in COMMANDS:
        under = getattr(subcommand(name), "commands", None)
        words += [(name,)] if under is None else [(name, word) for word in under]
    return words


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
