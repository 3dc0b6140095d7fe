"""Match agents to resources without learning what the agents want.

Names are imported when they are first used (PEP 562), so that a device, which has no numerical libraries, can import
`palmatch.device`, and so that the command starts at once.
"""

from __future__ import annotations

# In place of the one of `typing`, whose import would take longer than all the rest of this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from palmatch import data
    from palmatch.domains import mobility, pairs, papers, scores, table
    from palmatch.errors import DidNotConverge, InputError, PalmatchError
    from palmatch.matching import Guarantee, Matching, Outcome, Trace
    from palmatch.methods import METHODS, Method, PreparedMethod, Settings, Workspace, match, prepare, register
    from palmatch.problem import Domain, Partition, Problem, Utility, make_problem
    from palmatch.studies.audit import audit
    from palmatch.studies.compare import compare
    from palmatch.studies.fairness import fairness
    from palmatch.studies.frontier import frontier
    from palmatch.studies.limit import limit
    from palmatch.studies.plan import plan

__version__ = "0.2.0"

# Where each public name is defined; a name that is itself a module is marked with a trailing dot.
_HOME = {
    "METHODS": "palmatch.methods",
    "DidNotConverge": "palmatch.errors",
    "Domain": "palmatch.problem",
    "Guarantee": "palmatch.matching",
    "InputError": "palmatch.errors",
    "Matching": "palmatch.matching",
    "Outcome": "palmatch.matching",
    "PalmatchError": "palmatch.errors",
    "Partition": "palmatch.problem",
    "Problem": "palmatch.problem",
    "Method": "palmatch.methods",
    "PreparedMethod": "palmatch.methods",
    "Settings": "palmatch.methods",
    "Workspace": "palmatch.methods",
    "register": "palmatch.methods",
    "Trace": "palmatch.matching",
    "Utility": "palmatch.problem",
    "audit": "palmatch.studies.audit",
    "compare": "palmatch.studies.compare",
    "data": "palmatch.",
    "fairness": "palmatch.studies.fairness",
    "frontier": "palmatch.studies.frontier",
    "limit": "palmatch.studies.limit",
    "make_problem": "palmatch.problem",
    "match": "palmatch.methods",
    "mobility": "palmatch.domains.",
    "pairs": "palmatch.domains.",
    "plan": "palmatch.studies.plan",
    "papers": "palmatch.domains.",
    "prepare": "palmatch.methods",
    "scores": "palmatch.domains.",
    "table": "palmatch.domains.",
}

__all__ = [
    "METHODS",
    "DidNotConverge",
    "Domain",
    "Guarantee",
    "InputError",
    "Matching",
    "Method",
    "Outcome",
    "PalmatchError",
    "Partition",
    "PreparedMethod",
    "Problem",
    "Settings",
    "Trace",
    "Utility",
    "Workspace",
    "audit",
    "compare",
    "data",
    "fairness",
    "frontier",
    "limit",
    "make_problem",
    "match",
    "mobility",
    "pairs",
    "papers",
    "plan",
    "prepare",
    "register",
    "scores",
    "table",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = import_module(home + name) if home.endswith(".") else getattr(import_module(home), name)
    # The next use finds it without asking again.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
