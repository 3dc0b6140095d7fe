"""Refuses beforehand what would not fit into this machine's memory, with how much it takes and what to do instead."""

from __future__ import annotations

import os
from pathlib import Path

from palmatch.domains import mobility
from palmatch.domains.papers import types_of_region
from palmatch.errors import InputError
from palmatch.problem import Problem

# Where a machine does not tell how much memory it has.
_USUAL = 16e9

# Bytes of memory for each byte of a file while it is read: its text, its lines, its cells and its numbers.
_READING = 8


def memory() -> float:
    """Return the bytes of memory of this machine, or a usual number where it does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return _USUAL


def usable() -> float:
    """Return the bytes that tables may take: accounting and play need as much again."""
    return memory() / 2


def _refuse(takes: float, what: str, remedy: str) -> None:
    if takes > usable():
        raise InputError(
            f"{what} about {takes / 1e9:,.0f} GB, and this machine has {usable() / 1e9:,.0f} GB for that: {remedy}."
        )


def check_file(path: Path | None) -> None:
    """Refuse a file that cannot be read into memory; what cannot be looked at is refused by those who read it."""
    if path is not None and path.is_file():
        _refuse(
            _READING * path.stat().st_size,
            f"{path} takes",
            "leave out rows and resources, or match one part of the regions at a time",
        )


def check_city(problem: Problem) -> Problem:
    """Refuse a city whose public tables do not fit: without an interest every type values every resource."""
    city = problem.domain
    if problem.interest is None and isinstance(city, mobility.City):
        edges = [square.edge for square in problem.regions if isinstance(square, mobility.Square)]
        types = sum(len(city.axis(edge)) ** 2 for edge in edges)
        _check_tables(problem, types + problem.agents)
    return problem


def check_types(problem: Problem) -> Problem:
    """Refuse a problem whose possible types value more resources than fit."""
    _check_tables(problem, sum(len(problem.domain.types_of(region)) for region in problem.regions))
    return problem


def _check_tables(problem: Problem, rows: int) -> None:
    bound = "" if problem.interest is not None else " without a bound on the interest"
    _refuse(
        8.0 * problem.resources * rows,
        f"{problem.agents:,} agents and {problem.resources:,} resources{bound} take, for the utilities of all possible "
        "agents,",
        "choose smaller regions or fewer types"
        if problem.interest is not None
        else "add --interest 20, so that only each one's 20 best resources are looked at",
    )


def check_areas(areas: int, *, named: int, agents: int, papers: int) -> None:
    """Refuse an --areas that means nothing where so many areas are named, or that this machine has no memory for."""
    if not 1 <= areas <= named:
        raise InputError(f"Expected --areas from 1 to {named}, as many as there are, got --areas {areas}.")
    # An area that is a reviewer's primary one is a region: all sets of areas that its reviewers may have, and what each
    # paper is worth to each of them.
    row = 8 * papers * min(named, agents)
    most = max(count for count in range(1, areas + 1) if count == 1 or row * types_of_region(count, named) <= usable())
    types = types_of_region(areas, named)
    _refuse(
        row * types,
        f"With --areas {areas} of {named} a region has {types:,} possible reviewers, whose utilities take up to",
        f"choose at most {most}" if most < areas else "match fewer papers at a time",
    )
