"""Match agents to resources without learning what the agents want.

Names are imported when they are first used (PEP 562), so that a device, which has no numerical libraries, can import
`palmatch.device`, and so that the command starts at once.
"""

from __future__ import annotations

# In place of the one of `typing`, whose import would take longer than all the rest of this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from palmatch import data
    from palmatch.domain import Domain
    from palmatch.domains import bids, mobility, pairs, papers, scores, table
    from palmatch.errors import DidNotConverge, InputError, PalmatchError
    from palmatch.matching import Guarantee, Matching, Outcome, Trace
    from palmatch.methods import METHODS, Method, PreparedMethod, Settings, Workspace, match, prepare, register
    from palmatch.problem import Problem, make_problem
    from palmatch.session import Budget, Session
    from palmatch.studies.audit import audit
    from palmatch.studies.compare import compare
    from palmatch.studies.fairness import fairness
    from palmatch.studies.limit import limit
    from palmatch.studies.plan import plan, plan_epsilon

__version__ = "0.2.0"

# Where public names are defined; names that are modules themselves under a home with a trailing dot.
_HOMES = {
    "palmatch.": ("data",),
    "palmatch.domain": ("Domain",),
    "palmatch.domains.": ("bids", "mobility", "pairs", "papers", "scores", "table"),
    "palmatch.errors": ("DidNotConverge", "InputError", "PalmatchError"),
    "palmatch.matching": ("Guarantee", "Matching", "Outcome", "Trace"),
    "palmatch.methods": (
        "METHODS",
        "Method",
        "PreparedMethod",
        "Settings",
        "Workspace",
        "match",
        "prepare",
        "register",
    ),
    "palmatch.problem": ("Problem", "make_problem"),
    "palmatch.session": ("Budget", "Session"),
    "palmatch.studies.audit": ("audit",),
    "palmatch.studies.compare": ("compare",),
    "palmatch.studies.fairness": ("fairness",),
    "palmatch.studies.limit": ("limit",),
    "palmatch.studies.plan": ("plan", "plan_epsilon"),
}

__all__ = [
    "METHODS",
    "Budget",
    "DidNotConverge",
    "Domain",
    "Guarantee",
    "InputError",
    "Matching",
    "Method",
    "Outcome",
    "PalmatchError",
    "PreparedMethod",
    "Problem",
    "Session",
    "Settings",
    "Trace",
    "Workspace",
    "audit",
    "bids",
    "compare",
    "data",
    "fairness",
    "limit",
    "make_problem",
    "match",
    "mobility",
    "pairs",
    "papers",
    "plan",
    "plan_epsilon",
    "prepare",
    "register",
    "scores",
    "table",
]


def __getattr__(name: str) -> object:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = import_module(home + name) if home.endswith(".") else getattr(import_module(home), name)
    # The next use finds it without asking again.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
