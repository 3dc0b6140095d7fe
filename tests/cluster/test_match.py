"""A matching on tiles is the matching: for what can be cut, with and without a map, in every field."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import palmatch as pm
from palmatch.cluster.match import TILED, check_tiled, match_on_tiles
from palmatch.errors import InputError
from palmatch.methods import Ground, Settings, prepare
from palmatch.problem import Matching, Problem

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


@pytest.mark.parametrize("method", TILED)
@pytest.mark.parametrize("interest", [6, None])
def test_a_matching_on_tiles_is_the_matching_of_one_machine(method: str, interest: int | None) -> None:
    problem = city(interest)
    alone = prepare(Ground(problem), method, settings=NUMBERS).play(3)
    same(match_on_tiles(Ground(problem), method, settings=NUMBERS, seed=3, tiles=4, few=0), alone)


def test_regions_without_a_map_can_be_cut_too() -> None:
    problem = papers()
    alone = prepare(Ground(problem), "palma", settings=NUMBERS).play(3)
    same(match_on_tiles(Ground(problem), "palma", settings=NUMBERS, seed=3, tiles=5, few=0), alone)


def test_what_cannot_be_cut_is_refused_with_what_can() -> None:
    with pytest.raises(InputError, match="once cannot be cut into tiles for a cluster: choose --policy from palma"):
        check_tiled("once", 2)
    with pytest.raises(InputError, match="tiles=0"):
        check_tiled("palma", 0)
    with pytest.raises(InputError, match="epsilon=-1"):
        match_on_tiles(Ground(city(6)), "palma", settings=Settings(epsilon=-1.0), seed=0, tiles=2)
