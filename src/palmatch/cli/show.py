"""How results look in a terminal: lines and tables of 80 columns, a progress bar, JSON for programs.

It knows nothing of what the results are about. Where they go is looked at before they are computed: nothing that was
read is written over. The standard streams are made fit for what is written to them: any
encoding, none at all, and warnings in one line.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO, TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from palmatch.atomic import make_folder, write_atomic
from palmatch.errors import InputError, MeaninglessSetting
from palmatch.report.words import counted as counted

if TYPE_CHECKING:
    # Their records alone: what computes them takes longer to load than most subcommands to run.
    from palmatch.matching import Guarantee
    from palmatch.methods import StageProgress
    from palmatch.problem import Problem

# How to spell what an output without these letters cannot show.
_SPELT = {"±": "+-", "≤": "<=", "°": " degrees", "\N{HORIZONTAL ELLIPSIS}": "...", "\N{NO-BREAK SPACE}": " "}
_SPELT |= dict(
    zip(
        "αγδεζλφé√×µ—–",
        ["alpha", "gamma", "delta", "eps", "zeta", "lambda", "phi", "e", "sqrt", "x", "u", "-", "-"],
        strict=True,
    )
)

# What commands say below figures that are computed from the truth.
FROM_THE_TRUTH = "Not to be published: welfare, losses and fairness are computed from the agents' true utilities."

PRIVATE_EPSILON = "ε of single agents, which `published` computes from their own utilities."


@dataclass(slots=True)
class _Output:
    """Which output is written, and where: set by the options of one run of the command."""

    quiet: bool = False
    to_stderr: bool = False
    compiling: bool = False


_output = _Output()


def be_quiet(wanted: bool) -> None:
    """Print no results, or do; and put them on the standard output."""
    _output.quiet, _output.to_stderr, _output.compiling = wanted, False, False


def results_to_stderr() -> None:
    """Print results on the standard error: the output is taken by data."""
    _output.to_stderr = True


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_SPELT.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


codecs.register_error("palmatch", _spell)


@contextmanager
def prepare_streams() -> Iterator[None]:
    """Let both streams show anything, give a closed output a place to go, and show our warnings as one line each."""
    if sys.stdout is None:
        # The output was closed before we began (`>&-`).
        sys.stdout = StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="palmatch")
    with warnings.catch_warnings():
        told: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, MeaninglessSetting):
                usual(message, category, *where)
            elif str(message) not in told:
                told.add(str(message))
                sys.stderr.write(f"palmatch: warning: {message}\n")

        usual = warnings.showwarning
        warnings.simplefilter("always", MeaninglessSetting)
        warnings.showwarning = show  # type: ignore[assignment]  # called by place
        yield


def width() -> int:
    """Return how wide results are: as COLUMNS says, or 80, or less on a narrower terminal."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) >= 20:
        return int(told)
    return min(80, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 80


def _console() -> Console:
    """Return the console for results: plain where it is no terminal."""
    return Console(
        file=sys.stderr if _output.to_stderr else sys.stdout,
        width=width(),
        highlight=False,
        markup=False,
        emoji=False,
        quiet=_output.quiet,
        legacy_windows=False,
    )


def _spelt(text: str) -> str:
    """Return a text as the output will show it, so that lines can be laid out with it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, errors="palmatch").decode(encoding)


def say(text: str = "", *, indent: str = "") -> None:
    """Print a line of results, folded to the width; further lines are indented."""
    console = _console()
    folded = textwrap.fill(
        _spelt(text), console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    console.print(folded)


def show_table(names: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> None:
    """Print rows of text under their headings, the first column(s) to the left and the others to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for column, name in enumerate(names):
        table.add_column(_spelt(name), justify="left" if column < left else "right", overflow="fold")
    for row in rows:
        # As plain text: a string would have :100: turned into a picture.
        table.add_row(*(Text(_spelt(cell)) for cell in row))
    _console().print(table)


@contextmanager
def progress_bar(title: str) -> Iterator[StageProgress]:
    """Show progress on the standard error while something runs; silent where that is no terminal."""
    if sys.stderr.isatty():
        announce_compiling()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
        disable=_output.quiet or not sys.stderr.isatty(),
    )
    tasks: dict[str, TaskID] = {}

    def progress(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(f"{title}: {what}", total=total)
        bar.update(tasks[what], completed=done, total=total)
        if done >= total:
            bar.remove_task(tasks.pop(what))

    with bar:
        yield progress


def announce_compiling() -> None:
    """Say that the first run on a machine takes longer, and why."""
    kept = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(kept) if kept else Path(__file__).parents[1]
    if not (_output.quiet or _output.compiling) and next(folder.rglob("*.nbi"), None) is None:
        _output.compiling = True
        sys.stderr.write("palmatch: compiling kernels for the first time; this takes up to a minute, once.\n")


def pick(record: Any, names: str) -> dict[str, Any]:
    """Return attributes of a record by their names, which have spaces between them: for JSON."""
    return {name: getattr(record, name) for name in names.split()}


def warn_privately(text: str) -> None:
    """Write a line on the standard error that is for the operator alone, and not in any result."""
    if not _output.quiet:
        sys.stderr.write(f"palmatch: {text} (for you alone: not to be published)\n")


def say_seeded(seed: int | None) -> None:
    """Say that draws follow from a seed, where one was given."""
    if seed is not None:
        say(f"A simulation: all draws follow from --seed {seed}, and protect no agent.")


def say_notes(problems: Sequence[Problem]) -> None:
    """Print what problems note: about public records, and, not to be published, about what their agents truly are."""
    for note in dict.fromkeys(note for problem in problems for note in problem.public_notes):
        say(f"Note: {note}")
    for note in dict.fromkeys(note for problem in problems for note in problem.notes):
        say(f"Not to be published: {note}")


def size_of(problem: Problem, *, regions: bool = True) -> str:
    """Return one line about a problem."""
    if problem.pairs:
        sides = f"{counted(problem.agents, 'agent')} to be matched with each other"
    else:
        sides = f"{counted(problem.agents, 'agent')}, {counted(problem.resources, 'resource')}"
    many = len(problem.regions)
    return f"{sides}, {counted(many, 'region')} with agents in {'them' if many != 1 else 'it'}" if regions else sides


def with_delta(delta: float) -> str:
    """Return δ in words to put behind ε-PLDP; nothing where there is none."""
    return f" with δ = {delta:g}" if delta else ""


def show_guarantee(guarantee: Guarantee, *, explain: bool = False) -> None:
    """Print a guarantee in three lines, and to whom it does not apply; all that it assumes with `explain`."""
    from palmatch.guarantee import SIMULATION, bounds, brief_statement

    if guarantee.notion == "none":
        say(f"Guarantee: none. {guarantee.statement}")
    else:
        say(f"Guarantee: {guarantee.notion}, {bounds(guarantee)} ({guarantee.accountant}).")
        say(f"  {brief_statement(guarantee)}", indent="    ")
        whom = guarantee.applies_to if explain else guarantee.applies_to.partition(";")[0]
        say(f"  Applies to: {whom}.{'' if explain else ' Assumptions and limits: --explain.'}", indent="    ")
    if SIMULATION in guarantee.assumptions and not explain:
        say(f"  {SIMULATION}", indent="    ")
    if guarantee.uncovered:
        listed = ", ".join(guarantee.uncovered[:10]) + (", ..." if len(guarantee.uncovered) > 10 else "")
        say(f"  Agents to whom it does not apply ({len(guarantee.uncovered)}): {listed}", indent="    ")
    if explain:
        say(f"  In full: {guarantee.statement}", indent="    ")
        if guarantee.partition:
            say(f"  Regions: {guarantee.partition}.", indent="    ")
        for title, lines in (("Assumed", guarantee.assumptions), ("Not covered", guarantee.not_covered)):
            for line in lines:
                say(f"  {title}: {line}", indent="    ")


def write_json(path: Path | None, content: Mapping[str, Any] | Sequence[Any]) -> bool:
    """Write JSON to a file, or to the standard output for `-`; numbers that JSON lacks become null.

    Returns whether the output is still to be had for words.
    """
    if path is None:
        return True
    to_output = str(path) == "-"
    # What cannot be encoded for the output is escaped, which JSON knows how to.
    escaped = to_output and _spelt("ε") != "ε"
    text = json.dumps(_finite(content), indent=2, ensure_ascii=escaped, allow_nan=False) + "\n"
    if to_output:
        sys.stdout.write(text)
    else:
        write_atomic(path, text)
    return not to_output


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- where results go ---------------------------------------------------------------------------------------------


def check_outputs(
    read: Iterable[Path | None] = (),
    *,
    out: Path | None = None,
    json: Path | None = None,
    kinds: tuple[str, ...] = (".csv", ".parquet"),
    name: str = "--out",
) -> None:
    """Refuse an --out, or what it is called, or --json that cannot be a file, or that is one of those that are read."""
    if str(out) == str(json) == "-":
        raise InputError(f"Only one of {name} and --json can be -, the standard output; give the other one by name.")
    asked = {name: out, "--json": json}
    written = {option: path for option, path in asked.items() if path is not None and str(path) != "-"}
    if name in written and written[name].suffix.lower() not in kinds:
        raise InputError(f"Expected a file that ends in {' or '.join(kinds)}, got {name} {out}; choose another name.")
    for option, path in written.items():
        if path.is_dir():
            raise InputError(f"{path} is a directory, expected the name of a file; choose another {option}.")
        if not path.parent.is_dir():
            raise InputError(f"{path} cannot be written: the folder {path.parent} does not exist; create it first.")
        if any(is_same(path, source) for source in read if source is not None):
            raise InputError(f"{path} is read and would be written over; choose another {option}.")
    if len(written) == 2 and is_same(*written.values()):
        raise InputError(f"Expected two files, got {out} for both {name} and --json; choose another name for one.")


def is_same(one: Path, other: Path) -> bool:
    """Return whether two paths name one file; one that is not there yet has no identity but its name."""
    return one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve()


def folder_for(out: Path) -> Path:
    """Make the folder of --out, and refuse one that nothing can be written to."""
    try:
        with TemporaryFile(dir=make_folder(out)):
            return out
    except OSError as error:
        raise InputError(f"{out}: cannot be written to ({error.strerror}); choose another --out.") from None
