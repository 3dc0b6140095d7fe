"""The methods that come with the package, each with its facts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from palmatch.methods import centralised, geo, lists, palma, reports
from palmatch.methods.exponential import prepare_exponential
from palmatch.methods.geo import prepare_geo
from palmatch.methods.registry import Method, register
from palmatch.methods.waves import prepare_waves

_THRESHOLD = lists.on_reports(lists.threshold)
_ADAPTIVE = lists.on_reports(lists.patient, discount=lists.SHARE_OF_PRICE)
_REPORT = "one report under randomised response, then a function of the reports"

# What several of them have in common.
_own_list = partial(Method, notion="none", spends=False, reveals="one's own list")
_centre = partial(Method, centre=True, rounds=False)
_knowing_centre = partial(_centre, notion="none", spends=False, random=False, reveals="all utilities, to a centre")
_noisy = partial(Method, notion="geo-indistinguishability", located=True)
_noisy_list = partial(_noisy, reveals="a list that follows from a noisy place")
_noisy_centre = partial(_noisy, centre=True, rounds=False, reveals="a noisy place, to a centre")
_attempts = partial(Method, reveals="noisy attempts, looks and back-offs", has_delta=True)

for _method in (
    Method(
        "once",
        "one private report, then bids on posted prices",
        reports.on_reports(reports.bids),
        reveals=_REPORT,
        settle=reports.bids,
        live=("bids",),
    ),
    Method(
        "once-threshold",
        "one private report, then down its list as a threshold falls",
        reports.on_reports(_THRESHOLD),
        reveals=_REPORT,
        settle=_THRESHOLD,
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
        reports.on_reports(_ADAPTIVE),
        reveals=_REPORT,
        settle=_ADAPTIVE,
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
        "noise-patient",
        "down the list of the region's averages, constant back-off (ε = 0)",
        lists.on_averages(lists.patient),
        spends=False,
        reveals="the region",
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
    _own_list("alma", "down one's own list, linear back-off, no privacy", lists.on_own_lists(lists.alma("linear"))),
    _own_list(
        "alma-logistic",
        "down one's own list, logistic back-off, no privacy",
        lists.on_own_lists(lists.alma("logistic")),
    ),
    _own_list(
        "alma-patient",
        "down one's own list, constant back-off, no privacy",
        lists.on_own_lists(lists.alma("patient")),
    ),
    _own_list(
        "alma-threshold",
        "down one's own list as a threshold falls, no privacy",
        lists.on_own_lists(lambda own, _settings: lists.whole_threshold(own)),
    ),
    _knowing_centre("hungarian", "the optimum; a centre knows everything, no privacy", centralised.prepare_hungarian),
    _centre(
        "hungarian-once",
        "the optimum of a centre that knows the reports of once",
        reports.prepare_hungarian_once,
        settle=reports.centre,
        reveals="one report under randomised response, to a centre",
        live=("report",),
    ),
    _centre(
        "hungarian-waves",
        "the optimum of a centre on reports in two waves, the second after seeing the first",
        prepare_waves,
        reveals=_REPORT,
        plans_in_play=True,
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
        prepare_exponential,
        reveals="one report of the exponential mechanism, to a centre",
    ),
    _noisy_centre(
        "hungarian-geo",
        "the optimum on noisy places of agents and resources",
        prepare_geo(rounds=False, resources_too=True),
    ),
    _noisy_centre(
        "hungarian-geo-agents",
        "the optimum on noisy places of agents",
        prepare_geo(rounds=False, resources_too=False),
    ),
    _noisy_centre(
        "hungarian-geo-square",
        "the optimum on noisy places of agents, truncated to their squares",
        geo.prepare_read("hungarian-geo-square", geo.on_square),
    ),
    _noisy_centre(
        "hungarian-geo-bayes",
        "the optimum on noisy places of agents, remapped by Bayes' rule",
        geo.prepare_read("hungarian-geo-bayes", geo.by_bayes),
    ),
    _noisy_list(
        "alma-geo",
        "ALMA on noisy places of agents and resources",
        prepare_geo(rounds=True, resources_too=True),
    ),
    _noisy_list("alma-geo-agents", "ALMA on noisy places of agents", prepare_geo(rounds=True, resources_too=False)),
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
