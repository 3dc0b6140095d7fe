"""Pages: one file without scripts that loads nothing, from a template and figures; the page of a comparison.

Sentences and tables are in the `.html.jinja` files beside this, pictures come from `figures`. Nothing is computed here
that a study should have computed.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from palmatch.atomic import make_folder, write_atomic
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.matching import Matching, format_epsilon
from palmatch.methods import METHODS, Settings, budgets
from palmatch.methods.rounds import published_policy
from palmatch.report import figures
from palmatch.report.results import fairness_lines, shortfall_lines, words_of
from palmatch.report.style import DPI, REGION_ONLY, help_of, kind_of, save, save_both
from palmatch.report.words import counted, epsilon_text, listed, percent, short
from palmatch.studies.compare import Comparison, Run, all_epsilons
from palmatch.studies.fairness import fairness
from palmatch.studies.limit import LIMIT


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that was written, as the page shows it."""

    path: Path
    width: int
    height: int

    @property
    def source(self) -> str:
        """The picture itself, as an address."""
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode("ascii")


def write_page(folder: Path, name: str, shown: Mapping[str, Figure], *, svg: bool = False, **facts: Any) -> list[Path]:
    """Write a page into a folder as report.html, with its figures beside it as PNG and perhaps as SVG; return them."""
    pictures = {}
    for each, figure in shown.items():
        path = folder / f"{each}.png"
        if svg:
            save_both(figure, folder, each)
        else:
            save(figure, path)
        width, height = (round(float(inches) * DPI) for inches in figure.get_size_inches())
        pictures[each] = Picture(path, width, height)
    environment = Environment(
        loader=PackageLoader("palmatch.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "exact": format_epsilon,
        "epsilon_short": lambda value: f"{value:g}" if value == round(value) else epsilon_text(value),
        "finite": isfinite,
        "listed": listed,
        "percent": percent,
        "short": short,
        # Escaped, with what is between backticks as code.
        "with_code": lambda text: Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text)))),
    }
    environment.globals |= {"METHODS": METHODS, "kind_of": kind_of, "help_of": help_of}
    # A picture that is not there is none, for the templates to ask.
    text = environment.get_template(f"{name}.html.jinja").render(pictures=_OrNone(pictures), **facts)
    page = folder / "report.html"
    write_atomic(page, text)
    return [page, *(picture.path for picture in pictures.values())]


class _OrNone(dict[str, Picture]):
    """Pictures by name; None where there is none."""

    def __missing__(self, name: str) -> None:
        return None


def write_report(
    folder: Path | str,
    comparison: Comparison,
    *,
    title: str,
    settings: Settings,
    seed: int | None,
    command: str,
    headline: str = "published",
    outline: ArrayLike | None = None,
    streets: Sequence[ArrayLike] = (),
    traces: Mapping[str, Matching] | None = None,
    notes: Sequence[str] = (),
) -> list[Path]:
    """Write `report.html` and its figures into a folder, and return what was written.

    Parameters
    ----------
    comparison:
        What the page is about.
    headline:
        The method that the summary, the guarantee and the map are about.
    command:
        What to type to get the same page again.
    outline:
        (latitude, longitude) of a shore or border for the map.
    streets:
        (latitude, longitude) along each street, for the map.
    traces:
        Recorded matchings by method, for the figure of how fast agents are served.
    notes:
        What else a reader has to know, before the problem's own notes.
    """
    runs, problem = comparison.runs, comparison.problem
    if headline not in runs:
        raise InputError(
            f"There is no {headline!r} among the compared methods ({', '.join(runs)}): "
            "compare it too, or choose another headline."
        )
    place = make_folder(Path(folder))
    first = {method: played[0].matching for method, played in runs.items()}
    rows = {row.method: row for row in comparison.rows}
    served = {method: fairness(problem, matching) for method, matching in first.items()}
    both = {name: served[name] for name in (headline, "hungarian") if name in served}
    guarantee, words = first[headline].guarantee, words_of(problem)
    shown: dict[str, Figure] = {}
    if isinstance(problem.domain, City):
        shown["map"] = figures.match_map(problem, first[headline], outline=outline, streets=streets)
        if "hungarian" in first and headline != "hungarian":
            shown["map-optimum"] = figures.match_map(problem, first["hungarian"], outline=outline, streets=streets)
    shown["loss"] = figures.loss_bars(comparison.rows)
    shown["served"] = figures.served_curves(both, words)
    spending, spent = next((name for name in (headline, "published") if _spent_unequally(runs.get(name, ()))), ""), ""
    if spending:
        values, budget = all_epsilons(runs[spending]), first[spending].guarantee.epsilon
        shown["epsilon"] = figures.epsilon_histogram(runs[spending], budget)
        spent = (
            f"Histogram of ε by agent: median {np.median(values):.2f}, largest {values.max():.2f}, budget {budget:g}."
        )
    if traces:
        shown["rounds"] = figures.rounds_curve(traces)
    least, lot = rows.get(LIMIT), rows.get("random")
    named = (rows[headline], least, lot)
    free = [row for row in rows.values() if row not in named and kind_of(row.method, row.epsilon_max) is REGION_ONLY]
    lacking = shortfall_lines(problem, first[headline]) if problem.capacities is not None else []
    delta = f", δ = {format_epsilon(guarantee.delta)}" if guarantee.delta else ""
    return write_page(
        place,
        "comparison",
        shown,
        title=title,
        problem=problem,
        words=words,
        conflicts=len(problem.original_capacities.conflicts),
        headline=headline,
        best=rows[headline],
        guarantee=guarantee,
        bounds=f"ε at most {format_epsilon(guarantee.epsilon)}{delta}",
        least=least,
        lot=lot,
        free=min(free, key=lambda row: row.loss_mean, default=None),
        first=first,
        ranked=sorted(comparison.rows, key=lambda row: (row.loss_mean, row.method)),
        served=served,
        evenly=" ".join(f"{line}." for line in fairness_lines(problem, served[headline])),
        lacking=" ".join(line.strip() for line in lacking),
        spending=spending,
        spent=spent,
        own_budgets=np.ptp(budgets(problem, settings)) > 0,
        floor=log(1 / settings.delta) / settings.order if settings.delta else 0.0,
        traces=traces or {},
        private=[name for name, matching in first.items() if not matching.epsilon_is_public],
        notes=(*notes, *problem.public_notes, *problem.notes),
        command=command,
        seed=seed,
        settings=settings,
        truth_selection=settings.truth_selection or published_policy(problem, settings).truth_selection,
    )


def _spent_unequally(runs: Sequence[Run]) -> bool:
    """Return whether an agent's ε says more than the guarantee does."""
    if not runs:
        return False
    guarantee, spent = runs[0].matching.guarantee, all_epsilons(runs)
    inside = guarantee.notion == "PLDP" and bool(np.isfinite(spent).all())
    # Two values, such as nothing and everything, make no picture.
    return inside and len(np.unique(spent)) > 2
