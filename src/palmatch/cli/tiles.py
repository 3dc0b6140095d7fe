"""palmatch match --cluster or --memory: folders in, a folder of pairs out, tile by tile."""

from __future__ import annotations

import re
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palmatch.cli import options, show
from palmatch.cli.inputs import BudgetOptions, ProblemOptions
from palmatch.cluster import connected
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.studies.partition import MATCHERS, Partition, match_partitioned
from palmatch.studies.tasks import started_processes
from palmatch.threads import processors

# Bytes that the process of a tile takes at most, and the one that runs the command.
_TILE_BYTES, _OWN_BYTES = 1_000_000_000, 800_000_000


def workers_of(cluster: str | None, memory: str | None) -> AbstractContextManager[Executor]:
    """Return the processes that match tiles: those of a cluster, or as many of this machine as fit."""
    if cluster is not None and memory is not None:
        raise InputError("--memory is for processes of this machine: leave it out with --cluster.")
    if cluster is not None:
        return connected(cluster)
    size = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([GM])B?", (memory or "").strip().upper())
    if size is None:
        raise InputError(f"Expected a size such as 4GB or 800MB, got --memory {memory!r}.")
    given = float(size[1]) * (1e9 if size[2] == "G" else 1e6)
    if given < _OWN_BYTES + _TILE_BYTES:
        raise InputError(f"--memory {memory} is too little: matching tile by tile takes at least 2GB.")
    return started_processes(min(int((given - _OWN_BYTES) // _TILE_BYTES), processors()))


def match_tiles(
    agents: Path,
    resources: Path | None,
    out: Path,
    workers: AbstractContextManager[Executor],
    *,
    method: str,
    chosen: ProblemOptions,
    budget: BudgetOptions,
    score: bool,
    explain: bool,
    json: Path | None,
) -> None:
    """Match more agents than fit one process."""
    others = [*chosen.files, chosen.h3, chosen.min_papers, chosen.min_reviewers, chosen.limits]
    if chosen.domain != "mobility" or chosen.pairs or resources is None or any(one is not None for one in others):
        raise InputError(
            "--cluster and --memory match tiles of a map: they go with --domain mobility and two files or folders, "
            "without --pairs, --conflicts, --likely, --reports, --zones, --h3 and --roads."
        )
    if method not in MATCHERS:
        raise InputError(f"--cluster and --memory go with {', '.join(MATCHERS)}, not with {method}.")
    if chosen.interest is None:
        raise InputError("--cluster and --memory need --interest, such as --interest 20: every tile is matched alone.")
    if out.suffix or str(out) == "-":
        raise InputError(f"--cluster and --memory write a folder of Parquet files, got --out {out}: give a name alone.")
    for path in (agents, resources):
        if not path.exists():
            raise InputError(f"{path}: there is no such file or folder.")
    partition = Partition(
        folder=out.resolve(),
        method=method,
        settings=budget.settings,
        interest=chosen.interest,
        edge=chosen.edge,
        alpha=chosen.alpha,
        spacing=100.0 if chosen.spacing is None else chosen.spacing,
        origin=mobility.ORIGIN if chosen.origin is None else options.place(chosen.origin),
        capacity=chosen.capacity,
        demand=chosen.demand,
    )
    files = agents.resolve(), resources.resolve()
    try:
        with workers as executor, show.progress_bar("matching") as progress:
            found = match_partitioned(*files, partition, executor, seed=budget.seed, score=score, progress=progress)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Reports are kept in {out}; the same command goes on from there.") from None
    figures: dict[str, Any] = asdict(found) | {
        "method": method,
        "seed": budget.seed,
        "files": [str(file) for file in found.files],
        "not_to_be_published": ["welfare", "seed"],
    }
    if show.write_json(json, figures):
        welfare = "" if found.welfare is None else f", welfare {found.welfare:,.2f}"
        sides = f"{show.counted(found.agents, 'agent')}, {show.counted(found.resources, 'resource')}"
        show.say(f"{sides}, {show.counted(found.regions, 'region')}, {show.counted(found.tiles, 'tile')}")
        show.say(f"{method}: {found.matched:,} matched with {show.counted(found.filled, 'unit')}{welfare}")
        show.show_guarantee(found.guarantee, explain=explain)
        if found.welfare is not None:
            show.say(show.FROM_THE_TRUTH)
        show.say(f"Pairs are in {out}, in {show.counted(len(found.files), 'file')}; reports stay beside them.")
