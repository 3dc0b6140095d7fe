"""The registry of methods: one record for each, with every fact that other parts of the package need to know.

There is no list of method names anywhere else. `register` adds a method; so does an entry point of the group
`palmatch.methods`, and `find` takes "module:name" for a method that is in neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal, TypeAlias

from palmatch.errors import InputError
from palmatch.guarantee import simulated
from palmatch.matching import Matching
from palmatch.methods.assembly import PreparedGame
from palmatch.methods.results import finished
from palmatch.methods.workspace import Settings, Workspace
from palmatch.plugins import iter_entry_points, load_object
from palmatch.streams import Randomness

if TYPE_CHECKING:
    from palmatch.methods.reports import Matcher

Notion: TypeAlias = Literal["PLDP", "geo-indistinguishability", "none"]
Protocol: TypeAlias = Literal["report", "bids", "rounds"]
Play: TypeAlias = Callable[[Randomness], Matching]
Prepare: TypeAlias = Callable[[Workspace, Settings, bool], Play]
Game: TypeAlias = Callable[[Workspace, Settings], PreparedGame]


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
        (workspace, settings, trace) to something that plays; `trace` asks for a record of what an observer sees.
    notion:
        The notion of privacy of its guarantee.
    spends:
        Whether its guarantee depends on ε: False where an agent's type is never acted on, and where it always is.
    reveals:
        What an observer sees of an agent, in words.
    centre:
        Whether a party other than agents and resources computes the matching.
    rounds:
        Whether agents act round after round, so that there is a number of rounds to speak of.
    random:
        Whether two plays may differ.
    located:
        Whether it needs a domain with places.
    game:
        How its game of rounds is put together, if it is one.
    matcher:
        How reports become a matching, if an agent reveals one report and nothing else: a stored report can then be
        used again, which is post-processing.
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
    prepare: Prepare
    notion: Notion = "PLDP"
    spends: bool = True
    reveals: str = ""
    centre: bool = False
    rounds: bool = True
    random: bool = True
    located: bool = False
    game: Game | None = None
    matcher: Matcher | None = None
    live: tuple[Protocol, ...] = ()
    proved: bool = True
    has_delta: bool = False
    units: bool = False
    pairs: bool = False

    @property
    def private(self) -> bool:
        """Whether it guarantees anything."""
        return self.notion != "none"


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
