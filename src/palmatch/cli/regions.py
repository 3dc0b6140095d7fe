"""palmatch regions: the public regions of two files, as a table or as GeoJSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from palmatch.cli import options, show
from palmatch.cli.inputs import inputs_of
from palmatch.cli.options import option
from palmatch.cli.outputs import check_outputs
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.problem import Problem

HELP = "Show the public regions: what they are called, how many agents and possible types each has, and where it lies."
EXAMPLES = (
    "Example: palmatch regions agents.csv vehicles.csv --edge 1000 --out squares.geojson\n\n"
    "Regions and how many agents are in each are public under the guarantee; nothing else about an agent is shown."
)


@options.sharing
def command(
    *,
    agents: options.Agents,
    resources: options.Resources = None,
    chosen: options.ProblemOptions,
    edge: options.Edge = 1000.0,
    areas: options.Areas = 3,
    out: Annotated[
        Path | None, option("--out", "Where the squares go: .geojson; - for the output.", options.MOBILITY)
    ] = None,
    json: options.Json = None,
) -> None:
    """Show regions."""
    check_outputs(agents, resources, *chosen.files, out=out, json=json, kinds=(".geojson", ".json"))
    if out is not None and chosen.domain != "mobility":
        raise InputError("--out goes with --domain mobility: other regions have no place on a map.")
    problem = inputs_of(agents, resources, chosen).problem(chosen.size(edge, areas), None)
    rows = _rows(problem)
    if out is not None and not show.write_json(out, squares(problem)):
        show.results_to_stderr()
    if show.write_json(json, {"regions": rows}):
        show.say(show.size_of(problem))
        show.show_table(
            ["region", "agents", "types"], [(r["region"], f"{r['agents']:,}", f"{r['types']:,}") for r in rows]
        )
        if out is not None and str(out) != "-":
            show.say(f"Squares are in {out}.")


def _rows(problem: Problem) -> list[dict[str, Any]]:
    counts = np.bincount(problem.region_index, minlength=len(problem.regions)).tolist()
    return [
        {"region": str(region), "agents": count, "types": len(problem.domain.types_of(region))}
        for region, count in zip(problem.regions, counts, strict=True)
    ]


def squares(problem: Problem) -> dict[str, Any]:
    """Return the squares as a GeoJSON FeatureCollection (RFC 7946: longitude first, counter-clockwise, closed)."""
    city = problem.domain
    if not isinstance(city, mobility.City):
        raise InputError("Only the squares of the mobility domain have a place on a map.")
    features = []
    for square, row in zip(problem.regions, _rows(problem), strict=True):
        assert isinstance(square, mobility.Square)
        around = city.corner(square) + square.edge * np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
        ring = [[round(float(lon), 7), round(float(lat), 7)] for lat, lon in city.degrees(around)]
        shape = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "geometry": shape, "properties": row | {"edge": square.edge}})
    return {"type": "FeatureCollection", "features": features}
