"""The methods that come with the package, each with its facts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from palmatch.methods import centralised, lists, palma, reports
from palmatch.methods.geo import prepare_alma_geo, prepare_bayes, prepare_hungarian_geo
from palmatch.methods.registry import Method, register

_REPORT = "one report under randomised response, then a function of the reports"

# What several of them have in common.
_centre = partial(Method, centre=True, rounds=False)
_knowing_centre = partial(_centre, notion="none", spends=False, random=False, reveals="all utilities, to a centre")
_noisy = partial(Method, notion="geo-indistinguishability", located=True)
_noisy_centre = partial(_noisy, centre=True, rounds=False, reveals="a noisy place, to a centre")
_attempts = partial(Method, reveals="noisy attempts, looks and back-offs", has_delta=True)

for _method in (
    Method(
        "once",
        "one private report, then bids on posted prices",
        reports.on_reports(reports.listed_plan, reports.auction),
        reveals=_REPORT,
        matcher=reports.auction,
        live=("bids",),
    ),
    _attempts(
        "palma",
        "PALMA with proved accounting",
        palma.in_rounds(palma.palma_game),
        game=palma.palma_game,
        live=("rounds",),
    ),
    Method(
        "palma-adaptive",
        "all of ε on the first choice, then rounds on the list it implies",
        reports.on_reports(reports.reporting, lists.adaptive),
        reveals=_REPORT,
        matcher=lists.adaptive,
    ),
    _attempts(
        "published",
        "PALMA as in the paper, with the paper's accounting",
        palma.in_rounds(palma.published_game),
        game=palma.published_game,
        proved=False,
    ),
    Method(
        "noise",
        "PALMA without a budget (ε = 0): the region's noise only",
        palma.in_rounds(palma.noise_game),
        spends=False,
        reveals="the region",
        game=palma.noise_game,
    ),
    Method(
        "unlimited",
        "PALMA with an infinite budget: the truth only, no privacy",
        palma.in_rounds(palma.unlimited_game),
        notion="none",
        spends=False,
        reveals="attempts, looks and back-offs on one's own utilities",
        game=palma.unlimited_game,
    ),
    Method(
        "alma",
        "down one's own list, linear back-off, no privacy",
        lists.prepare_alma,
        notion="none",
        spends=False,
        reveals="one's own list",
    ),
    _knowing_centre("hungarian", "the optimum; a centre knows everything, no privacy", centralised.prepare_hungarian),
    _centre(
        "hungarian-once",
        "the optimum of a centre that knows the reports of once",
        reports.on_reports(
            reports.reporting, reports.optimal, check=partial(reports.check_reports_fit, method="hungarian-once")
        ),
        matcher=reports.optimal,
        reveals="one report under randomised response, to a centre",
        live=("report",),
    ),
    _centre(
        "hungarian-region",
        "the optimum of a centre that knows only regions (ε = 0)",
        centralised.prepare_hungarian_region,
        spends=False,
        reveals="the region, to a centre",
    ),
    _centre(
        "hungarian-exponential",
        "the optimum of a centre on reports of the exponential mechanism",
        reports.on_reports(
            reports.exponential_plan,
            reports.optimal,
            check=partial(centralised.refuse_too_large, method="hungarian-exponential"),
        ),
        reveals="one report of the exponential mechanism, to a centre",
    ),
    _noisy_centre(
        "hungarian-geo",
        "the optimum on noisy places of agents and resources",
        prepare_hungarian_geo,
    ),
    _noisy_centre(
        "hungarian-geo-bayes",
        "the optimum on noisy places of agents, remapped by Bayes' rule",
        prepare_bayes,
    ),
    _noisy(
        "alma-geo",
        "ALMA on noisy places of agents and resources",
        prepare_alma_geo,
        reveals="a list that follows from a noisy place",
    ),
    _knowing_centre("greedy", "the best pair first; a centre knows everything, no privacy", centralised.prepare_greedy),
    _centre(
        "random",
        "resources at random (ε = 0)",
        centralised.prepare_random,
        spends=False,
        reveals="nothing",
    ),
):
    # All of them take capacities, demands and conflicts; agents that have partners have no places to be blurred.
    register(replace(_method, units=True, pairs=not _method.located))
