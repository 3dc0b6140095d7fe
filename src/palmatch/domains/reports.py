"""What published reports of earlier matchings tell of where agents are likely to be: a public prior, learnt from them.

Post-processing of reports, which costs no ε. Each report counts once. Nothing in here reads a place: a file of reports
has regions, channels and reports, and one with positions is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from scipy.spatial import cKDTree

from palmatch.data.files import FilePath, complaint, filled_texts, listed, need_column, read_sheet
from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray

# By the name of a region a row for each report: how likely it is from each of the region's possible types.
Reports: TypeAlias = Mapping[str, FloatArray]

# The public prior before counts as this many reports, and so many are the least from which anything is learnt.
PRIOR_REPORTS, FEWEST_REPORTS = 50.0, 20


def learn_prior(
    base: FloatArray, likelihoods: FloatArray, places: FloatArray, width: float, *, steps: int = 5
) -> FloatArray:
    """Smoothed maximum a posteriori prior over types, with `base` counted as `PRIOR_REPORTS`.

    π ← (κ π₀ + K Σ_i π L_i / ⟨π, L_i⟩) / (κ + n): the expectation-maximisation step of Agrawal and Aggarwal (PODS 2001)
    with a Dirichlet prior, and K, a Gaussian kernel between types whose columns sum to 1, as in the EMS of Silverman,
    Jones, Wilson and Nychka (JRSS B 1990). Without K a hundred reports for hundreds of types teach next to nothing.

    Parameters
    ----------
    base:
        The prior without reports, shape (types,).
    likelihoods:
        How likely each report is from each type, shape (reports, types).
    places, width:
        Where types are, shape (types, 2), and the kernel's standard deviation; it ends at three of them.
    steps:
        Of expectation and maximisation.
    """
    if len(likelihoods) < FEWEST_REPORTS:
        return base
    tree = cKDTree(places)
    kernel = tree.sparse_distance_matrix(tree, 3 * width, output_type="coo_matrix").tocsr()
    kernel.data = np.exp(-((kernel.data / width) ** 2) / 2)
    mass = kernel.sum(axis=0)
    weights = base
    for _ in range(steps):
        posterior = likelihoods * weights
        posterior /= posterior.sum(axis=1, keepdims=True)
        smoothed = kernel @ (posterior.sum(axis=0) / np.asarray(mass).ravel())
        weights = (PRIOR_REPORTS * base + smoothed) / (PRIOR_REPORTS + len(likelihoods))
    return weights


def prior_from_reports(
    reports: Reports | None, region: str, base: FloatArray, places: FloatArray, width: float
) -> FloatArray:
    """Return a region's prior: `base` where nothing has been reported from it."""
    told = None if reports is None else reports.get(region)
    if told is None:
        return base
    if told.shape[1] != len(base):
        raise InputError(
            f"The reports of region {region} are about {told.shape[1]} possible types, and it has {len(base)}: use "
            "the spacing that they were drawn with."
        )
    return learn_prior(base, told, places, width)


# --- files ---------------------------------------------------------------------------------------------------------

COLUMNS = ("region", "channel", "report")
_PLACES = {"lat", "latitude", "lon", "lng", "longitude", "x", "y", "geometry", "position"}


def report_columns(reports: Iterable[tuple[str, IntArray]]) -> dict[str, list[Any]]:
    """Return the columns of a file from regions and chances over GRID of what was reported, for each possible type.

    A channel is written with two reports, the one that was given and all others together.
    """
    rows = []
    for region, chances in reports:
        levels, cells = np.unique(chances, return_inverse=True)
        channel = {"cells": cells.tolist(), "chances": [[one, GRID - one] for one in levels.tolist()]}
        rows.append((region, json.dumps(channel, separators=(",", ":")), 0))
    return dict(zip(COLUMNS, map(list, zip(*rows, strict=True)) if rows else ([], [], []), strict=True))


def read_reports(path: FilePath) -> Reports:
    """Read a file with the columns region, channel and report; one with positions in it is refused.

    A channel is JSON: {"cells": the cell of each possible type, "chances": for each cell the chance over 2^53 of each
    report}.
    """
    sheet = read_sheet(path)
    places = [name for name in sheet.names if name.casefold() in _PLACES]
    if places:
        raise InputError(
            f"{sheet.source}: found the columns {listed(places)}, expected region, channel and report: a file of "
            "reports holds no positions; take them out."
        )
    region, channel, report = (need_column(sheet, name) for name in COLUMNS)
    regions = filled_texts(sheet, region, expected="the name of a region")
    channels = filled_texts(sheet, channel, expected="a channel")
    told: dict[str, list[FloatArray]] = {}
    known: dict[tuple[str, str], FloatArray | None] = {}
    for row, name in enumerate(regions):
        number = str(sheet.columns[report][row])
        key = (channels[row], number)
        if key not in known:
            known[key] = _likelihood(*key)
        likelihood = known[key]
        if likelihood is None or told.get(name, [likelihood])[0].shape != likelihood.shape:
            expected = "a channel of the region's possible types that has the report, rows of chances that sum to 2^53"
            raise complaint(sheet, channel, row=row, expected=expected, advice="correct it", public=False)
        told.setdefault(name, []).append(likelihood)
    return {name: np.array(rows) for name, rows in told.items()}


def _likelihood(channel: str, report: str) -> FloatArray | None:
    """Return how likely a report is from each possible type; None for what is no channel, or does not have it."""
    try:
        read = json.loads(channel)
        cells, chances = (np.array(read[name], dtype=np.int64) for name in ("cells", "chances"))
        sound = (chances >= 0).all() and (chances.sum(axis=1) == GRID).all() and cells.min() >= 0
        likelihood: FloatArray = chances[cells, int(report)] / GRID
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        return None
    return likelihood if sound and likelihood.ndim == 1 and likelihood.max() > 0 else None
