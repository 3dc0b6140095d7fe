"""The registry of methods: one record for each, with every fact that other parts of the package need to know.

Method = mechanism × matcher: a method of one report names both. There is no list of method names anywhere else.
`register` adds a method; so does an entry point of the group `palmatch.methods`, and `find` takes "module:name" for a
method that is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Literal, TypeAlias

from palmatch.errors import InputError
from palmatch.guarantee import simulated
from palmatch.matchers.required import refuse_unmet
from palmatch.matching import Matching
from palmatch.mechanisms.response import exponential_channel
from palmatch.methods import baselines, reports, rounds
from palmatch.methods.workspace import Play, Settings, Workspace, finished
from palmatch.plugins import iter_entry_points, load_object
from palmatch.problem import Problem
from palmatch.streams import Randomness

Notion: TypeAlias = Literal["PLDP", "geo-indistinguishability", "none"]
Protocol: TypeAlias = Literal["report", "bids", "rounds"]
Prepare: TypeAlias = Callable[[Workspace, Settings, bool], Play]


@dataclass(frozen=True, slots=True)
class PreparedMethod:
    """A method ready to be played on one problem: everything that does not depend on chance is done.

    Attributes
    ----------
    name:
        The name of the method.
    workspace:
        The problem, with what was computed of it.
    run:
        Plays once with given draws; call `play` instead.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> pm.prepare(problem, "hungarian-region").play().matched
    2

    References
    ----------
    - Page "The guarantee", [What is assumed][]: fresh randomness, and why a seed makes a simulation.
    - Page "Architecture", [Decisions][]: what a simulated draw depends on.
    """

    name: str
    workspace: Workspace
    run: Play

    def play(self, seed: int | None = None, *, chance: Randomness | None = None) -> Matching:
        """Play once.

        Parameters
        ----------
        seed:
            Repeats a matching: a simulation, which its guarantee then says. Without one every agent draws from its own
            fresh randomness.
        chance:
            The draws, in place of a seed, in studies that fix those of some agents.

        Returns
        -------
        Matching
            The resource of each agent, with the guarantee under which it was found.
        """
        chance = self.workspace.randomness(seed) if chance is None else chance
        matching = finished(self.workspace.problem, replace(self.run(chance), method=self.name))
        return replace(matching, guarantee=simulated(matching.guarantee)) if chance.simulated else matching


@dataclass(frozen=True, slots=True)
class Method:
    """What is known of a method before it is played.

    Attributes
    ----------
    name, help:
        Its name, and one line about it.
    prepare:
        (workspace, settings, trace) to something that plays; `trace` asks for a record of what an observer sees. None
        where a mechanism and a matcher, or a game of rounds, say it all.
    mechanism, matcher:
        What an agent reveals, and how that becomes a matching, if it is one report and nothing else: a stored report
        can then be used again, which is post-processing.
    game:
        How its game of rounds is put together, if it is one.
    check:
        Refuses a problem that is too large, before anything is computed.
    notion:
        The notion of privacy of its guarantee.
    spends:
        Whether its guarantee depends on ε: False where an agent's type is never acted on, and where it always is.
    reveals:
        What an observer sees of an agent, in words.
    parts:
        Its mechanism and its matcher, a word each; rounds are both.
    centre:
        Whether a party other than agents and resources computes the matching.
    rounds:
        Whether agents act round after round, so that there is a number of rounds to speak of.
    random:
        Whether two plays may differ.
    located:
        Whether it needs a domain with places.
    live:
        The protocols by which devices can play it.
    proved:
        Whether its stated guarantee is proved for this implementation; `published` states the paper's.
    has_delta:
        Whether its guarantee may have δ > 0.
    units:
        Whether it takes capacities, demands and conflicts (`Problem.capacities`).
    pairs:
        Whether it matches agents with each other (`Problem.pairs`).

    Examples
    --------
    >>> import palmatch as pm
    >>> once = pm.METHODS["once"]
    >>> once.notion, once.centre, once.has_delta
    ('PLDP', False, False)

    References
    ----------
    - Page "For researchers", [Replace a part][]: a method of your own.
    - Page [Related mechanisms][]: trust, guarantee and cost of methods.
    """

    name: str
    help: str
    prepare: Prepare | None = None
    mechanism: reports.Mechanism | None = None
    matcher: reports.Matcher | None = None
    game: rounds.Game | None = None
    check: Callable[[Problem, str], None] | None = None
    notion: Notion = "PLDP"
    spends: bool = True
    reveals: str = ""
    parts: tuple[str, str] = ("its own", "its own")
    centre: bool = False
    rounds: bool = True
    random: bool = True
    located: bool = False
    live: tuple[Protocol, ...] = ()
    proved: bool = True
    has_delta: bool = False
    units: bool = False
    pairs: bool = False

    @property
    def private(self) -> bool:
        """Whether it guarantees anything."""
        return self.notion != "none"

    def prepared(self, workspace: Workspace, settings: Settings, trace: bool) -> Play:
        """Return what plays it, with everything done that does not depend on randomness.

        Parameters
        ----------
        workspace:
            The problem, with what is computed from it once.
        settings:
            ε, δ, and the method's own options.
        trace:
            Whether the matching records its rounds.

        Returns
        -------
        Play
            A function of randomness that gives a matching.
        """
        if self.check is not None:
            self.check(workspace.problem, self.name)
        refuse_unmet(workspace.problem, self.name, self.parts[1])
        if self.prepare is not None:
            return self.prepare(workspace, settings, trace)
        if self.mechanism is not None and self.matcher is not None:
            return reports.play_reports(self.mechanism, self.matcher, workspace, settings, trace)
        if self.game is None:
            raise InputError(f"The method {self.name} has neither `prepare`, nor mechanism and matcher, nor a game.")
        return rounds.play_rounds(self.game, workspace, settings, trace)


class Registry(Mapping[str, Method]):
    """All methods by name, in the order in which they were registered; entry points come last.

    Examples
    --------
    >>> import palmatch as pm
    >>> pm.METHODS["once"].has_delta, pm.METHODS["hungarian"].private
    (False, False)

    References
    ----------
    - [Danassis, Filos-Ratsikas, Faltings (IJCAI 2019)][]: ALMA, the method `alma`.
    - Page [The command][]: every method with its guarantee.
    - Page [Choosing a method][].
    """

    def __init__(self) -> None:
        self._methods: dict[str, Method] = {}
        self._complete = False

    def _load(self) -> dict[str, Method]:
        if not self._complete:
            self._complete = True
            for _, source, found in iter_entry_points("palmatch.methods"):
                self.register(_checked(found, source))
        return self._methods

    def register(self, method: Method) -> Method:
        """Add a method; `palmatch.register` does so to `palmatch.METHODS`."""
        if method.name in self._methods:
            raise InputError(f"There is a method {method.name!r} already: give yours another name.")
        self._methods[method.name] = method
        return method

    def __getitem__(self, name: str) -> Method:
        known = self._load()
        if name in known or ":" not in name:
            return known[name]
        found = imported(name)
        # Results carry its own name, by which its facts have to be found again.
        return found if known.get(found.name) == found else self.register(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())

    def find(self, name: str) -> Method:
        """Return a method by its name, or by "module:name" where a `Method` is to be found there.

        Parameters
        ----------
        name:
            The name, or "module:name".

        Returns
        -------
        Method
            The record. An `InputError` names the nearest method where there is none of this name.
        """
        if name in self:
            return self[name]
        raise self.unknown(name)

    def unknown(self, name: str, *, beside: Sequence[str] = ()) -> InputError:
        """Return the error about a name that is no method's, with the nearest one; `beside` may be named as well."""
        names = [*self, *beside]
        near = get_close_matches(name, names, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        return InputError(f"There is no method {name!r}: choose from {', '.join(names)}.{meant}")


METHODS = Registry()


def register(method: Method) -> Method:
    """Add a method to the registry; the command and `palmatch.match` then find it by its name.

    Parameters
    ----------
    method:
        The record; its name must be new.

    Returns
    -------
    Method
        The same record.

    Examples
    --------
    A registry of its own, so that the example leaves `palmatch.METHODS` as it is:

    >>> import palmatch as pm
    >>> registry = type(pm.METHODS)()
    >>> registry.register(pm.METHODS["once"]).name in registry
    True

    References
    ----------
    - [Entry points][]: the other way to add a method, for packages.
    - Page "For researchers", [Replace a part][].
    """
    return METHODS.register(method)


def imported(name: str) -> Method:
    """Return the `Method` at "module:name"."""
    return _checked(load_object(name, "a method"), name)


def _checked(value: object, source: str) -> Method:
    if not isinstance(value, Method):
        raise InputError(f"Expected a palmatch.Method at {source}, found {type(value).__name__}.")
    return value


_GEO: Notion = "geo-indistinguishability"
_REPORT = "one report under randomised response, then a function of the reports"

# What several of them have in common.
_centre = partial(Method, centre=True, rounds=False, check=baselines.refuse_too_large)
_knowing_centre = partial(
    _centre, notion="none", spends=False, random=False, reveals="all utilities, to a centre", parts=("truth", "optimal")
)
_noisy_centre = partial(
    _centre, notion=_GEO, located=True, reveals="a noisy place, to a centre", parts=("laplace", "optimal")
)
_attempts = partial(Method, reveals="noisy attempts, looks and back-offs", has_delta=True, parts=("rounds", "rounds"))

for _method in (
    Method(
        "once",
        "one private report, then bids on posted prices",
        mechanism=partial(reports.reporting, listed=True),
        matcher=reports.auction,
        reveals=_REPORT,
        live=("bids",),
        parts=("report", "auction"),
    ),
    _attempts("palma", "PALMA with proved accounting", game=rounds.palma_game, live=("rounds",)),
    Method(
        "palma-adaptive",
        "all of ε on the first choice, then rounds on the list it implies",
        mechanism=reports.reporting,
        matcher=reports.adaptive,
        reveals=_REPORT,
        parts=("report", "alma"),
    ),
    _attempts(
        "published", "PALMA as in the paper, with the paper's accounting", game=rounds.published_game, proved=False
    ),
    Method(
        "noise",
        "PALMA without a budget (ε = 0): the region's noise only",
        game=rounds.noise_game,
        spends=False,
        reveals="the region",
        parts=("rounds", "rounds"),
    ),
    Method(
        "unlimited",
        "PALMA with an infinite budget: the truth only, no privacy",
        game=rounds.unlimited_game,
        notion="none",
        spends=False,
        reveals="attempts, looks and back-offs on one's own utilities",
        parts=("truth", "rounds"),
    ),
    Method(
        "alma",
        "down one's own list, linear back-off, no privacy",
        baselines.prepare_alma,
        notion="none",
        spends=False,
        reveals="one's own list",
        parts=("truth", "alma"),
    ),
    _knowing_centre("hungarian", "the optimum; a centre knows everything, no privacy", baselines.prepare_hungarian),
    _centre(
        "hungarian-once",
        "the optimum of a centre that knows the reports of once",
        mechanism=reports.reporting,
        matcher=reports.optimal,
        check=baselines.refuse_beyond_auction,
        reveals="one report under randomised response, to a centre",
        live=("report",),
        parts=("report", "optimal"),
    ),
    _centre(
        "hungarian-region",
        "the optimum of a centre that knows only regions (ε = 0)",
        baselines.prepare_hungarian_region,
        spends=False,
        reveals="the region, to a centre",
        parts=("region", "optimal"),
    ),
    _centre(
        "hungarian-exponential",
        "the optimum of a centre on reports of the exponential mechanism",
        mechanism=partial(reports.channel_reports, make=exponential_channel),
        matcher=reports.optimal,
        reveals="one report of the exponential mechanism, to a centre",
        parts=("exponential", "optimal"),
    ),
    _noisy_centre(
        "hungarian-geo", "the optimum on noisy places of agents and resources", baselines.prepare_hungarian_geo
    ),
    _noisy_centre(
        "hungarian-geo-bayes", "the optimum on noisy places of agents, remapped by Bayes' rule", baselines.prepare_bayes
    ),
    Method(
        "alma-geo",
        "ALMA on noisy places of agents and resources",
        baselines.prepare_alma_geo,
        notion=_GEO,
        located=True,
        reveals="a list that follows from a noisy place",
        parts=("laplace", "alma"),
    ),
    _knowing_centre(
        "greedy",
        "the best pair first; a centre knows everything, no privacy",
        baselines.prepare_greedy,
        parts=("truth", "greedy"),
    ),
    Method(
        "random",
        "resources at random (ε = 0)",
        baselines.prepare_random,
        centre=True,
        rounds=False,
        spends=False,
        reveals="nothing",
        parts=("region", "random"),
    ),
):
    # All of them take capacities, demands and conflicts; agents that have partners have no places to be blurred.
    METHODS.register(replace(_method, units=True, pairs=not _method.located))
