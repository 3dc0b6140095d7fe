"""Channels of the limit as reports: they keep ε in whole numbers, and they are used where they serve better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.methods import Settings, Workspace
from palmatch.methods import recommended as module
from palmatch.methods.recommended import affordable, better_on_made_up, recommended_channels
from palmatch.methods.reports import FEW_AGENTS, FINE_STEP, STEP, reporting
from palmatch.policies.channel import keeps
from palmatch.policies.once import silent
from palmatch.privacy.limit_solver import solve
from palmatch.studies.limit import PublicKnowledge


@pytest.fixture(scope="module")
def town():
    night = pm.data.city.batch(5.0)
    return PublicKnowledge.of(pm.mobility.problem(night.requests, night.vehicles, edge=4000, spacing=500))


def _channels(town, program):
    return recommended_channels(program, town.regions, np.full(len(program.capacities), 0.3))


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 4.0, 10.0])
def test_every_recommendation_keeps_its_budget_in_whole_numbers(town, epsilon):
    channels = _channels(town, town.program(epsilon))
    assert any(channel.reports > 1 for channel in channels)
    for channel in channels:
        assert (channel.chances.sum(axis=1) == GRID).all()
        assert keeps(channel.chances, epsilon)


@pytest.mark.parametrize("epsilon", [0.0, np.inf])
def test_without_a_budget_or_without_an_end_nothing_is_recommended(town, epsilon):
    assert not affordable(town.program(epsilon))
    assert all(channel.reports == 1 for channel in _channels(town, town.program(epsilon)))


def test_a_channel_that_breaks_its_budget_is_mended(town, monkeypatch):
    """Planted: the solver's channels are for a larger ε than the agents have."""
    generous = solve(town.program(5.0))
    monkeypatch.setattr(module, "solve", lambda program, **_: generous)
    for channel in _channels(town, town.program(0.5)):
        assert keeps(channel.chances, 0.5)


def test_channels_that_tell_nothing_lose_the_trial(town):
    program = town.program(2.0)
    telling = _channels(town, program)
    mute = [silent(region, prior=prior) for region, prior in zip(town.regions, town.priors, strict=True)]
    assert better_on_made_up(program, town.regions, mute, telling) is telling
    assert better_on_made_up(program, town.regions, telling, mute) is telling


def test_channels_do_not_depend_on_where_the_agents_are(town):
    crowds = list(town.crowds(2, seed=5))
    plans = [reporting(Workspace(crowd), Settings()) for crowd in crowds]
    for one, other in zip(plans[0].channels, plans[1].channels, strict=True):
        assert (one.chances == other.chances).all()
        assert (one.values == other.values).all()
    assert (plans[0].opening == plans[1].opening).all()


def test_many_agents_bid_in_coarser_steps(town):
    assert reporting(Workspace(town.problem), Settings()).step == FINE_STEP < STEP
    chance = np.random.default_rng(0)
    places = chance.uniform((40.70, -74.01), (40.80, -73.95), (FEW_AGENTS + 1, 2))
    many = pm.mobility.problem(places, places, edge=20_000, spacing=10_000, interest=3)
    assert reporting(Workspace(many), Settings()).step == STEP


def test_what_is_too_large_to_be_tried_is_left_alone(town):
    program = town.program(1.0)
    assert affordable(program)
    assert not affordable(replace(program, groups=program.groups * 100))
