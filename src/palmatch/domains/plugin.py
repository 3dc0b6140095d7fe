"""Domains of others: classes that make a domain and its agents of two files, named by an entry point or "module:Class".

Such a class is a `Domain` with one thing more, `from_frames`. Ids, budgets, capacities, demands and conflicts are read
here, in the same way for all of them; what a column means besides is known to the class alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter, signature
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from palmatch.data.files import Sheet, epsilons, find_column, identifiers, unit_counts
from palmatch.domain import Domain, raised
from palmatch.errors import InputError
from palmatch.plugins import iter_entry_points, load_object
from palmatch.problem import Problem, given_or, make_problem

GROUP = "palmatch.domains"
BUILT_IN = ("mobility", "papers", "table")


@runtime_checkable
class FromFrames(Protocol):
    """What `--domain module:Class` names: a class of domains that can be made of two files."""

    def from_frames(
        self, agents: pl.DataFrame, resources: pl.DataFrame, **settings: float | str
    ) -> tuple[Domain, ArrayLike]:
        """Return the domain, and each agent's type: one row of numbers an agent, in the file's order.

        Parameters
        ----------
        agents, resources:
            The files: `id` as text, every other column as numbers where all its cells are numbers, else as text.
        settings:
            What the user chose with `--set NAME=VALUE`; the class names them, with their defaults, as parameters.
        """
        ...


def plugin_domains() -> dict[str, object]:
    """Return the classes that installed packages bring, by name."""
    return {name: found for name, _, found in iter_entry_points(GROUP)}


def find_domain(name: str) -> FromFrames:
    """Return the class that an entry point or "module:Class" names, or refuse in one sentence."""
    found = load_object(name, "a domain") if ":" in name else plugin_domains().get(name)
    if found is None:
        known = ", ".join((*BUILT_IN, *plugin_domains()))
        raise InputError(f"There is no domain {name!r}: choose from {known}, or name your own as module:Class.")
    if not isinstance(found, FromFrames) or not callable(found.from_frames):
        raise InputError(f"The domain {name} has no class method from_frames(agents, resources): give it one.")
    return found


def problem(
    name: str,
    agents: Sheet,
    resources: Sheet,
    *,
    settings: Mapping[str, float | str] | None = None,
    interest: int | None = None,
    capacity: int | None = None,
    demand: int | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
) -> Problem:
    """Return the problem of two files, refusing a domain that breaks a rule of `palmatch.testing.check_domain`."""
    made = find_domain(name)
    _check_settings(name, made, settings or {})
    try:
        domain, given = made.from_frames(frame_of(agents), frame_of(resources), **(settings or {}))
        types = np.asarray(given, dtype=np.float64)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"The domain {name} cannot use {agents.source} and {resources.source}: {raised(error)}."
        ) from error
    return make_problem(
        domain,
        types,
        agent_ids=identifiers(agents),
        resource_ids=identifiers(resources),
        epsilon=epsilons(agents, find_column(agents, "epsilon")),
        interest=interest,
        capacity=given_or(unit_counts(resources, "capacity"), capacity),
        demand=given_or(unit_counts(agents, "demand"), demand),
        conflicts=conflicts,
    )


def frame_of(sheet: Sheet) -> pl.DataFrame:
    """Return a file's columns as a frame, with numbers where all filled cells of a column are numbers."""
    return pl.DataFrame([_column(name, series) for name, series in zip(sheet.names, sheet.columns, strict=True)])


def _column(name: str, series: pl.Series) -> pl.Series:
    named = series.alias(name)
    if name.casefold() == "id":
        return named.cast(pl.String).str.strip_chars()
    if series.dtype != pl.String:
        return named
    filled = named.str.strip_chars().replace("", None)
    parsed = filled.cast(pl.Float64, strict=False)
    return parsed if parsed.null_count() == filled.null_count() else filled


def _check_settings(name: str, made: FromFrames, settings: Mapping[str, Any]) -> None:
    parameters = list(signature(made.from_frames).parameters.values())[2:]
    known = [parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD]
    unknown = [setting for setting in settings if setting not in known]
    if unknown and len(known) == len(parameters):
        choice = f"choose from {', '.join(known)}" if known else "it has none"
        raise InputError(f"The domain {name} has no setting {unknown[0]!r}: {choice}.")
