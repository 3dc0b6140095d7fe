"""How results look in a terminal: tables of 80 columns, a progress bar while one waits, JSON for programs."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from palmatch.cli.streams import spelt
from palmatch.data.whole import write_whole
from palmatch.matching import Guarantee, in_words
from palmatch.methods import METHODS, StageProgress
from palmatch.problem import Problem
from palmatch.report.phrases import counted as counted
from palmatch.report.phrases import epsilon_text

if TYPE_CHECKING:
    # Their records alone: what computes them takes longer to load than most subcommands to run.
    from palmatch.studies.compare import Row
    from palmatch.studies.plan import RegionPlan

WIDTH = 80
_NARROWEST = 20

# What commands say below figures that are computed from the truth.
FROM_THE_TRUTH = "Not to be published: welfare, losses and fairness are computed from the agents' true utilities."

PRIVATE_EPSILON = "ε of single agents, which `published` computes from their own utilities."


def say_notes(*problems: Problem) -> None:
    """Print what problems note: about public records, and, not to be published, about what their agents truly are."""
    for note in dict.fromkeys(note for problem in problems for note in problem.public_notes):
        say(f"Note: {note}")
    for note in dict.fromkeys(note for problem in problems for note in problem.notes):
        say(f"Not to be published: {note}")


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


def width() -> int:
    """Return how wide results may be: what COLUMNS says, or 80, or a narrower terminal."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) >= _NARROWEST:
        return int(told)
    return min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH


def out() -> Console:
    """Return the console for results: plain where it is no terminal."""
    stream = sys.stderr if _output.to_stderr else sys.stdout
    return Console(
        file=stream,
        width=width(),
        highlight=False,
        markup=False,
        emoji=False,
        quiet=_output.quiet,
        legacy_windows=False,
    )


def say(text: str = "", *, indent: str = "") -> None:
    """Print a line of results, folded to the width; further lines are indented."""
    text = spelt(text)
    out().print(textwrap.fill(text, width(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


@contextmanager
def progress_bar(title: str) -> Iterator[StageProgress]:
    """Show progress on the standard error while something runs; silent where that is no terminal."""
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
    """Say on a terminal that the first run on a machine takes longer, and why."""
    if sys.stderr.isatty() and not _output.quiet and not _output.compiling and not _kernels_are_kept():
        _output.compiling = True
        sys.stderr.write("palmatch: compiling kernels for the first time; this takes up to a minute, once.\n")


def _kernels_are_kept() -> bool:
    """Say whether numba has kept compiled kernels of an earlier run."""
    kept = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(kept) if kept else Path(__file__).parents[1]
    return next(folder.rglob("*.nbi"), None) is not None


def say_seeded(seed: int | None) -> None:
    """Say that draws follow from a seed, where one was given."""
    if seed is not None:
        say(f"A simulation: all draws follow from --seed {seed}, and protect no agent.")


def size_of(problem: Problem) -> str:
    """Return one line about a problem."""
    regions = len(problem.regions)
    return f"{sides_of(problem)}, {counted(regions, 'region')} with agents in {'them' if regions != 1 else 'it'}"


def sides_of(problem: Problem) -> str:
    """Return how many agents and resources there are."""
    if problem.pairs:
        return f"{counted(problem.agents, 'agent')} to be matched with each other"
    return f"{counted(problem.agents, 'agent')}, {counted(problem.resources, 'resource')}"


def with_delta(delta: float) -> str:
    """Return δ in words to put behind ε-PLDP; nothing where there is none."""
    return f" with δ = {delta:g}" if delta else ""


def show_rows(rows: Sequence[Row]) -> None:
    """Print a comparison: everything about each method, or its loss over several sizes of region."""
    sizes = list(dict.fromkeys((row.edge, row.areas) for row in rows))
    if len(sizes) > 1:
        _show_losses(rows, sizes)
        return
    names = ("method", "loss %", "±", "ε median", "ε max", "matched", "rounds")
    lines = [
        (
            row.method,
            # Rounded first, since the optimum's loss of next to nothing may be a negative zero.
            f"{round(100 * row.loss_mean, 1) + 0.0:.1f}",
            f"{100 * row.loss_sd:.1f}",
            epsilon_text(row.epsilon_median),
            epsilon_text(row.epsilon_max),
            f"{row.matched_mean:,.1f}".removesuffix(".0") if row.matched_mean >= 0 else "-",
            f"{row.rounds_mean:,.0f}" if row.rounds_mean else "-",
        )
        for row in rows
    ]
    show_table(names, lines)


def explain_rows(rows: Sequence[Row]) -> None:
    """Say what the columns of a comparison mean, and which ε of it cannot be compared with the others."""
    none = " ε none: no privacy." if any(math.isinf(row.epsilon_max) for row in rows) else ""
    say(f"Loss is against the full-information optimum; ± is the standard deviation over runs.{none}")
    if any(row.method in METHODS and METHODS[row.method].notion == "geo-indistinguishability" for row in rows):
        say(
            "Methods with geo in their name: ε holds for two places half an edge apart and grows with the distance "
            "(geo-indistinguishability); it does not compare with the ε of the others."
        )


def _show_losses(rows: Sequence[Row], sizes: Sequence[tuple[float | None, int | None]]) -> None:
    names = ["loss in %", *(f"{edge:g} m" if areas is None else counted(areas, "area") for edge, areas in sizes)]
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        cells = {(row.edge, row.areas): row for row in rows if row.method == method}
        told = [f"{100 * cells[size].loss_mean:.1f} ± {100 * cells[size].loss_sd:.1f}" for size in sizes]
        lines.append((method, *told))
    show_table(names, lines)


def show_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1, right: int = 0, wrap: bool = False
) -> None:
    """Print rows of text under their headings, the first column(s) to the left and the others to the right.

    Where there is too little room the other columns go on in further tables, each with the first `left` and the last
    `right` ones again; with `wrap`, and where not even one more column has room, the first ones are folded.
    """
    lines = [[spelt(cell) for cell in row] for row in (names, *rows)]
    columns_of_cells = zip(*lines, strict=True)
    widths = [max(cell_len(part) for cell in column for part in cell.split("\n")) for column in columns_of_cells]
    ends = range(len(names) - right, len(names))
    parts = [range(left, len(names) - right)] if wrap else _parts(widths, left, ends)
    for part in parts:
        columns = [*range(left), *part, *ends]
        room = _room(widths, columns)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for column in columns:
            first = column < left
            fixed = not first if wrap or room > width() else first
            side: Literal["left", "right"] = "left" if first else "right"
            table.add_column(lines[0][column], justify=side, overflow="fold", no_wrap=fixed)
        for line in lines[1:]:
            # As plain text: a string would have :100: turned into a picture.
            table.add_row(*(Text(line[column]) for column in columns))
        out().print(table)


def _room(widths: Sequence[int], columns: Sequence[int]) -> int:
    """Return how wide a table with these columns is: three spaces between two of them, and one on either side."""
    return sum(widths[column] for column in columns) + 3 * len(columns) - 1


def _parts(widths: Sequence[int], left: int, ends: range) -> list[range]:
    """Return which of the other columns are in which table, so that each fits, or has one of them."""
    parts, start = [], left
    while start < ends.start:
        end = start + 1
        while end < ends.start and _room(widths, [*range(left), *range(start, end + 1), *ends]) <= width():
            end += 1
        parts.append(range(start, end))
        start = end
    return parts


def show_reports(plans: Sequence[RegionPlan]) -> None:
    """Print what the default method offers for a budget, a line each region."""
    names = ("region", "agents", "types", "ε", "reports", "fitting")
    lines = [
        (
            textwrap.shorten(line.region, 26, placeholder="..."),
            f"{line.agents:,}",
            f"{line.types:,}",
            in_words(line.epsilon),
            f"{line.reports:,}",
            f"{100 * line.fitting:.0f} %" if line.reports > 1 else "-",
        )
        for line in plans
    ]
    show_table(names, lines)


def show_actions(plans: Sequence[RegionPlan]) -> None:
    """Print how many actions of the paper's rounds a budget buys by each accountant, a line each region."""
    names = ("region", "pure", "renyi", "published", "select", "back-off", "worst ε")
    lines = [
        (
            textwrap.shorten(line.region, 20, placeholder="..."),
            _actions(line.bought["pure"]),
            _actions(line.bought["renyi"]),
            "any" if line.unlimited else f"{line.actions:,}",
            f"{line.selection_cost:.3g}",
            f"{line.backoff_cost:.3g}",
            epsilon_text(line.worst_epsilon, 3),
        )
        for line in plans
    ]
    show_table(names, lines)


def _actions(count: float) -> str:
    """Return a number of actions; what costs nothing but rounding can be had at will."""
    return "any" if count > 1e6 else f"{count:,.1f}"


def show_guarantee(guarantee: Guarantee) -> None:
    """Print a guarantee, what it assumes, and to whom it does not apply."""
    say(f"Guarantee ({guarantee.notion}, {guarantee.accountant}): {guarantee.statement}")
    if guarantee.notion != "none":
        say(f"  Applies to: {guarantee.applies_to}.", indent="    ")
    if guarantee.partition:
        say(f"  Regions: {guarantee.partition}.", indent="    ")
    for title, lines in (("Assumed", guarantee.assumptions), ("Not covered", guarantee.not_covered)):
        for line in lines:
            say(f"  {title}: {line}", indent="    ")
    if guarantee.uncovered:
        listed = ", ".join(guarantee.uncovered[:10]) + (", ..." if len(guarantee.uncovered) > 10 else "")
        say(f"  Agents to whom it does not apply ({len(guarantee.uncovered)}): {listed}", indent="    ")


def write_json(path: Path | None, content: Mapping[str, Any]) -> bool:
    """Write JSON to a file, or to the standard output for `-`; numbers that JSON lacks become null.

    Returns whether the output is still to be had for words.
    """
    if path is None:
        return True
    to_output = str(path) == "-"
    # What cannot be encoded for the output is escaped, which JSON knows how to.
    encoder = json.JSONEncoder(ensure_ascii=to_output and not _says("ε"), allow_nan=False)
    text = _encoded(content, encoder, "\n") + "\n"
    if to_output:
        sys.stdout.write(text)
    else:
        write_whole(path, text)
    return not to_output


def _says(text: str) -> bool:
    """Say whether the output can show a text."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _encoded(value: Any, encoder: json.JSONEncoder, line: str) -> str:
    """Return JSON with a line for every item; an item of a list that holds no other list or object has one line."""
    if isinstance(value, dict) and value:
        inner = line + "  "
        items = [f"{encoder.encode(str(key))}: {_encoded(item, encoder, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}"
    if isinstance(value, list | tuple) and value:
        inner = line + "  "
        items = [_encoded(item, encoder, inner) if _is_nested(item) else _encoded_flat(item, encoder) for item in value]
        return f"[{inner}{f',{inner}'.join(items)}{line}]"
    return _encoded_flat(value, encoder)


def _is_nested(item: Any) -> bool:
    inside = item.values() if isinstance(item, dict) else item if isinstance(item, list | tuple) else ()
    return any(isinstance(one, dict | list | tuple) for one in inside)


def _encoded_flat(item: Any, encoder: json.JSONEncoder) -> str:
    try:
        return encoder.encode(item)
    except ValueError:  # a number that JSON lacks
        if isinstance(item, dict):
            return encoder.encode({key: _finite(one) for key, one in item.items()})
        return encoder.encode([_finite(one) for one in item] if isinstance(item, list | tuple) else None)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
