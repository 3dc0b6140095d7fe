"""From a problem and the name of a method to a matching.

`prepare` does what can be done before the game (public tables, costs, budgets) and returns something that plays any
number of times; `match` prepares and plays once. `METHODS` is the registry of all methods.
"""

from __future__ import annotations

import numpy as np

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods.registry import METHODS as METHODS
from palmatch.methods.registry import Method as Method
from palmatch.methods.registry import PreparedMethod as PreparedMethod
from palmatch.methods.registry import register as register
from palmatch.methods.rounds import PreparedGame as PreparedGame
from palmatch.methods.rounds import accounts as accounts
from palmatch.methods.rounds import prepare_game as prepare_game
from palmatch.methods.workspace import Settings as Settings
from palmatch.methods.workspace import StageProgress as StageProgress
from palmatch.methods.workspace import Workspace as Workspace
from palmatch.methods.workspace import budgets as budgets
from palmatch.methods.workspace import make_matching as make_matching
from palmatch.methods.workspace import of_stage as of_stage
from palmatch.palma.accountant import check_budget
from palmatch.problem import HasCoordinates, Problem, refuse_capacities, refuse_pairs
from palmatch.streams import Randomness as Randomness


def match(
    problem: Problem,
    method: str = "once",
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    seed: int | None = None,
    trace: bool = False,
    settings: Settings | None = None,
    progress: StageProgress | None = None,
) -> Matching:
    """Match agents to resources.

    Parameters
    ----------
    problem:
        Agents and resources, made by a domain's `problem` or by `palmatch.make_problem`.
    method:
        A name from `palmatch.METHODS`, or "module:name" of a `palmatch.Method` of your own.
    epsilon, delta:
        The budget of the agents that bring none of their own (1 unless given), and δ (1e-5 unless given).
    seed:
        Repeats a matching, for tests and studies: a simulation, as its guarantee then says. Without one every agent
        draws from its own fresh randomness, which is kept nowhere.
    settings:
        All public numbers at once, in place of `epsilon` and `delta`.
    trace:
        Whether `Matching.trace` records what an observer would have seen.
    progress:
        Is called with (what, done, total) from time to time.

    Returns
    -------
    Matching
        The resource of each agent, with the guarantee under which it was found.

    Raises
    ------
    InputError
        If an argument cannot be used, or the method needs a domain with places.

    Examples
    --------
    >>> import palmatch as pm
    >>> morning = pm.data.city.batch(8.0, seed=1)
    >>> problem = pm.mobility.problem(morning.requests, morning.vehicles, edge=1000)
    >>> matching = pm.match(problem, epsilon=1.0, seed=7)
    >>> matching.matched, matching.guarantee.epsilon, matching.guarantee.delta
    (154, 1.0, 0.0)

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "PALMA: A Privacy-Preserving Weighted Matching Algorithm":
      `published` and `palma`.
    - Page [Channels][]: `once`, the default.
    - Page [Related mechanisms][]: the other methods, with their literature.
    """
    chosen = settings_of(settings, epsilon=epsilon, delta=delta)
    return prepare(Workspace(problem, progress), method, settings=chosen, trace=trace).play(seed)


def settings_of(settings: Settings | None, *, epsilon: float | None, delta: float | None) -> Settings:
    """Return the settings that a caller means, who gives either all of them or ε and δ."""
    if settings is None:
        usual = Settings()
        return Settings(
            epsilon=usual.epsilon if epsilon is None else epsilon, delta=usual.delta if delta is None else delta
        )
    if epsilon is not None or delta is not None:
        raise InputError("Give epsilon and delta inside of settings, or without settings, but not both ways.")
    return settings


def prepare(
    workspace: Workspace | Problem, method: str | Method, *, settings: Settings | None = None, trace: bool = False
) -> PreparedMethod:
    """Do everything that does not depend on randomness: public tables, costs, budgets, channels.

    Parameters
    ----------
    workspace:
        The problem, or a `Workspace` of it, which keeps what several methods share.
    method:
        A name from `palmatch.METHODS`, "module:name" of a `palmatch.Method` of your own, or the record itself.
    settings:
        All public numbers; the usual ones unless given.
    trace:
        Whether the matchings record what an observer sees.

    Returns
    -------
    PreparedMethod
        Can be played any number of times.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> workspace = pm.Workspace(pm.mobility.problem(night.requests, night.vehicles, edge=1000))
    >>> ready = pm.prepare(workspace, "once", settings=pm.Settings(epsilon=0.5))
    >>> [ready.play(seed).matched for seed in (1, 2)]
    [17, 17]

    References
    ----------
    - Page "Architecture", [Decisions][]: one assembler for all games, public and private records.
    - Page "The guarantee", [What is assumed][]: rank sets, costs and channels follow from what is public.
    """
    chosen, found = settings or Settings(), METHODS.find(method) if isinstance(method, str) else method
    workspace = Workspace(workspace) if isinstance(workspace, Problem) else workspace
    check_budget(np.array([chosen.epsilon]), order=chosen.order, delta=chosen.delta)
    if found.located and not workspace.problem.pairs and not isinstance(workspace.problem.domain, HasCoordinates):
        raise InputError(f"{found.name} needs places on a map: leave it out, or use the mobility domain.")
    if not found.pairs:
        refuse_pairs(workspace.problem, found.name)
    if not found.units and not workspace.problem.pairs:
        refuse_capacities(workspace.problem, found.name)
    return PreparedMethod(found.name, workspace, found.prepared(workspace, chosen, trace))
