"""The command: each subcommand is a function, imported when it is used, so that the command starts at once.

A user's mistake ends in one sentence on the standard error and exit status 2, never in a traceback; Ctrl-C ends in one
line and status 130.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo

import palmatch
from palmatch.cli import options, show
from palmatch.errors import PalmatchError

# In the order of the help, with its heading and the module, which has a function of the same name, or HELP and
# SUBCOMMANDS.
COMMANDS = {
    "match": ("Use", "match"),
    "compare": ("Use", "compare"),
    "plan": ("Use", "plan"),
    "types": ("Use", "types"),
    "methods": ("Use", "match"),
    "examples": ("Use", "examples"),
    "demo": ("Understand", "compare"),
    "explore": ("Understand", "explore"),
    "audit": ("Understand", "audit"),
    "limit": ("Understand", "plan"),
    "live": ("Live", "live"),
    "ledger": ("Live", "ledger"),
    "reproduce": ("Research", "reproduce"),
    "day": ("Research", "day"),
}


def main() -> None:
    """Run the command."""
    # New objects after which Python looks for cycles: usually 700, a seventh of the time of compiling kernels.
    gc.set_threshold(50_000)
    # Threads that OpenBLAS starts for products of matrices, of which there are few, take a fifth of a second to begin.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    group: Any = typer.main.get_command(app)
    # The names are all that the listing and the "did you mean" of a misspelt one ask for.
    group.commands = dict.fromkeys(COMMANDS)
    status = 0
    try:
        with show.prepare_streams():
            try:
                group(prog_name="palmatch")
            except SystemExit as stop:
                # typer and rich make an exit of a Ctrl-C, and of the error of a reader who has gone.
                cause: BaseException | None = stop
                while cause is not None:
                    if isinstance(cause, BrokenPipeError | KeyboardInterrupt):
                        raise cause from None
                    cause = cause.__cause__ or cause.__context__
                raise
            finally:
                # While a failure can still be reported.
                sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        # What a shell says of a program that was ended by Ctrl-C, and by SIGPIPE.
        said, status = " ".join(["stopped.", *map(str, interrupt.args)]), 130
    except PalmatchError as mistake:
        said, status = str(mistake), 2
    except BrokenPipeError:
        # The reader of our output (head, say) has gone.
        said, status = "", 141
    except OSError as error:
        reason, where = error.strerror or type(error).__name__, error.filename or "the output"
        said, status = f"{where}: cannot be written ({reason}); check the path and the free space.", 2
    except MemoryError:
        said, status = "this takes more memory than there is; bound the lists with --interest 20, or match less.", 2
    if status:
        sys.stderr.write(f"palmatch: {said}\n" if said else "")
        try:
            sys.stdout.flush()
        except OSError:
            # What the output could not take is dropped, or the interpreter would report it when it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(status)


class _Command(TyperCommand):
    """A subcommand whose help is plain text: arguments and options under their headings, then examples.

    `rare` are the options that only --help-all shows.
    """

    rare: frozenset[str] = frozenset()

    def get_help(self, ctx: Any) -> str:
        # The library writes UTF-8 where the output's encoding is ASCII.
        encoding = sys.stdout.encoding or "utf-8"
        return super().get_help(ctx).encode(encoding, "palmatch").decode(encoding)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.width = show.width()
        self.format_usage(ctx, formatter)
        for paragraph in (self.help or "").split("\n\n"):
            formatter.write_paragraph()
            formatter.write_text(" ".join(paragraph.split()))
        sections: dict[str, list[tuple[str, str]]] = {}
        parameter: Any
        for parameter in self.get_params(ctx):
            if parameter.name not in self.rare or ctx.meta.get(_ALL):
                name, words = parameter.get_help_record(ctx)
                usual = "Options" if parameter.param_type_name == "option" else "Arguments"
                sections.setdefault(parameter.rich_help_panel or usual, []).append((name, words))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=24, col_spacing=2)
        for paragraph in (self.epilog or "").split("\n\n"):
            formatter.write_paragraph()
            formatter.write_text(" ".join(paragraph.split()))


# Where a context notes that all options are to be shown.
_ALL = "palmatch.all"


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


class _Group(TyperGroup):
    """The subcommands of a subcommand, some of which have two words."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        two = " ".join(args[:2])
        return super().resolve_command(ctx, [two, *args[2:]] if two in self.commands else args)


class _LazyGroup(TyperGroup):
    """The subcommands by name: only the one that is asked for is imported, or all of them for the help."""

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
            # The library says only that a text is no number: name the text, and what to write instead.
            errors: list[dict[str, Any]] = getattr(mistake.__cause__, "errors", list)()
            expected = {
                "float_parsing": "one number, such as 0.5 or 1000",
                "int_parsing": "one whole number, such as 20",
            }
            if errors and errors[0]["type"] in expected:
                wanted = expected[errors[0]["type"]]
                mistake.message = f"found {errors[0]['input']!r}, expected {wanted}; write no unit and no comma."
            raise


app = typer.Typer(
    name="palmatch",
    help="Match agents to resources without learning what the agents want.",
    epilog="Start with: palmatch demo --out demo, then open demo/report.html.",
    cls=_LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


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


def subcommand(name: str) -> Any:
    """Return a subcommand, ready to be run."""
    heading, module_name = COMMANDS[name]
    module = import_module(f"palmatch.cli.{module_name}")
    command: Any
    if not hasattr(module, "SUBCOMMANDS"):
        command = _typer_command(name, getattr(module, name))
    else:
        under = {word: _typer_command(word, function) for word, function in module.SUBCOMMANDS.items()}
        first = next(iter(under.values())).epilog.partition("\n\n")[0]
        command = _Group(
            name=name, commands=under, help=module.HELP, epilog=first, no_args_is_help=True, rich_markup_mode="markdown"
        )
    command.rich_help_panel = heading
    return command


def _typer_command(name: str, function: Callable[..., None]) -> Any:
    """Return a function as a command: its docstring is the help of the command and of each option.

    A parameter by position is an argument, one by keyword an option, and a record has an option for each field. A
    parameter takes the place of a field of that name; fields named by `options.without` keep their defaults. What a
    docstring does not explain, `options.Shared` does.
    """
    help_text, words, examples = options.read_docstring(function)
    parameters: list[inspect.Parameter] = []
    records: dict[str, tuple[Any, list[str]]] = {}
    rare: list[str] = []
    own = inspect.signature(function, eval_str=True).parameters
    omitted = {*own, *getattr(function, "without", ())}
    for parameter in own.values():
        record: Any = parameter.annotation
        if is_dataclass(record):
            offered = [field for field in fields(record) if field.name not in omitted]
            records[parameter.name] = record, [field.name for field in offered]
            hints = get_type_hints(record, include_extras=True)
            for field in offered:
                home: Any = next(
                    each for each in inspect.getmro(cast(type, record)) if field.name in each.__annotations__
                )
                told = options.read_docstring(home)[1].get(field.name)
                parameters.append(_option(field.name, hints[field.name], field.default, told, home.PANEL))
                if field.name in getattr(home, "RARE", ()):
                    rare.append(field.name)
        else:
            info = typer.Argument() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else typer.Option()
            told = words.get(parameter.name)
            parameters.append(_option(parameter.name, record, parameter.default, told, info=info))
    parameters.append(_option("quiet", Annotated[bool, typer.Option("--quiet", "-q")], False))
    if rare:
        option = typer.Option(is_eager=True, callback=_show_all)
        parameters.append(_option("help_all", Annotated[bool, option], False))

    def run(**given: Any) -> None:
        show.be_quiet(given.pop("quiet"))
        given.pop("help_all", None)
        chosen = {name: record(**{each: given.pop(each) for each in of}) for name, (record, of) in records.items()}
        function(**given, **chosen)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown")
    alone.command(name, help=help_text, epilog=examples, cls=_Command)(run)
    command: Any = typer.main.get_command(alone)
    command.rare = frozenset(rare)
    return command


def _option(
    name: str, annotation: Any, default: Any, words: str | None = None, panel: str | None = None, info: Any = None
) -> inspect.Parameter:
    """Return a parameter as typer reads it: `--name`, with what `Annotated` says beside its type."""
    if get_origin(annotation) is Annotated:
        annotation, info = get_args(annotation)
    info = copy(info or typer.Option())
    if isinstance(info, OptionInfo):
        info.param_decls = info.param_decls or (f"--{name.replace('_', '-')}",)
        info.rich_help_panel = options.Shared.PANEL if words is None else panel
    info.help = options.read_docstring(options.Shared)[1][name] if words is None else words
    default = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, info]
    )
