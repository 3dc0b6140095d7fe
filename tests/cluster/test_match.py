"""A matching on tiles is the matching: for what can be cut, with and without a map, in every field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest

import palmatch as pm
from palmatch.cluster.connection import Cluster, connected
from palmatch.cluster.match import check_tiled, match_on_tiles
from palmatch.cluster.tiles import tiles_of
from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import Settings, Workspace, opening, prepare, reports
from palmatch.problem import Problem, make_problem

NUMBERS = Settings(epsilon=2.0)


def city(interest: int | None) -> Problem:
    batch = pm.data.city.batch(6.0, seed=2)
    return pm.mobility.problem(batch.requests, batch.vehicles[:40], edge=2000, interest=interest)


def papers() -> Problem:
    made_up = pm.data.conference.conference(reviewers=24, papers=9)
    return pm.papers.problem(made_up.reviewers, made_up.papers, areas=2, draw_primary=True, seed=1)


def same(one: Matching, other: Matching) -> None:
    for part in fields(one):
        np.testing.assert_equal(getattr(one, part.name), getattr(other, part.name))


@pytest.mark.parametrize("method", [name for name, method in pm.METHODS.items() if method.game])
@pytest.mark.parametrize("interest", [6, None])
def test_a_matching_on_tiles_is_the_matching_of_one_machine(method: str, interest: int | None) -> None:
    problem = city(interest)
    alone = prepare(Workspace(problem), method, settings=NUMBERS).play(3)
    same(match_on_tiles(Workspace(problem), method, settings=NUMBERS, seed=3, tiles=4, few=0), alone)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with connected("local:1") as here:
        yield here


@pytest.mark.parametrize("method", ["once", "once-threshold", "palma"])
def test_workers_compute_the_very_channels_and_accounts_of_one_machine(
    method: str, cluster: Cluster, monkeypatch
) -> None:
    # More regions than channels are tried for, so that workers have some to compute.
    monkeypatch.setattr(reports, "_TRIED", 3)
    monkeypatch.setattr(opening, "_REGIONS_AT_A_TIME", 2)
    problem = city(6)
    alone = prepare(Workspace(problem), method, settings=NUMBERS).play(3)
    same(match_on_tiles(Workspace(problem), method, settings=NUMBERS, seed=3, tiles=4, cluster=cluster), alone)


def test_regions_without_a_map_can_be_cut_too() -> None:
    problem = papers()
    alone = prepare(Workspace(problem), "palma", settings=NUMBERS).play(3)
    same(match_on_tiles(Workspace(problem), "palma", settings=NUMBERS, seed=3, tiles=5, few=0), alone)


def test_what_cannot_be_cut_is_refused_with_what_can() -> None:
    with pytest.raises(InputError, match="hungarian cannot be shared out to a cluster: choose --method from once"):
        check_tiled("hungarian", 2)
    with pytest.raises(InputError, match="tiles=0"):
        check_tiled("palma", 0)
    with pytest.raises(InputError, match="epsilon=-1"):
        match_on_tiles(Workspace(city(6)), "palma", settings=Settings(epsilon=-1.0), seed=0, tiles=2)


def test_tiles_do_not_depend_on_where_in_its_square_an_agent_is(monkeypatch) -> None:
    laid_out: list[bytes] = []
    monkeypatch.setattr(
        "palmatch.cluster.match.tiles_of",
        lambda *args: laid_out.append(b"".join(np.asarray(part).tobytes() for part in args)) or tiles_of(*args),
    )
    problem = city(6)
    for corner in (0, 3):
        moved = np.array([problem.domain.types_of(problem.regions[number])[corner] for number in problem.region_index])
        elsewhere = make_problem(problem.domain, moved, resource_ids=problem.resource_ids, interest=6)
        assert elsewhere.regions == problem.regions
        match_on_tiles(Workspace(elsewhere), "noise", settings=NUMBERS, seed=3, tiles=4, few=0)
    assert laid_out[0] == laid_out[1]


def test_agents_without_a_budget_change_no_prices_on_a_cluster() -> None:
    problem = city(6)
    epsilon = np.resize([0.0, 2.0, 1.0], problem.agents)
    mixed = make_problem(problem.domain, problem.types, resource_ids=problem.resource_ids, interest=6, epsilon=epsilon)
    alone = prepare(Workspace(mixed), "palma", settings=NUMBERS).play(3)
    same(match_on_tiles(Workspace(mixed), "palma", settings=NUMBERS, seed=3, tiles=4, few=0), alone)
    assert alone.charged[epsilon > 0].max() > 0
    assert alone.charged[epsilon == 0].max() == 0
