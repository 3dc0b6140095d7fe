"""Match agents to resources without learning what the agents want.

Names are imported when they are first used (PEP 562), so that a device, which has no numerical libraries, can import
`palmatch.device`, and so that the command starts at once.
"""

from __future__ import annotations

# In place of the one of `typing`, whose import would take longer than all the rest of this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from palmatch import data as data
    from palmatch.domain import Domain as Domain
    from palmatch.domains import bids as bids
    from palmatch.domains import mobility as mobility
    from palmatch.domains import pairs as pairs
    from palmatch.domains import papers as papers
    from palmatch.domains import scores as scores
    from palmatch.domains import table as table
    from palmatch.errors import DidNotConverge as DidNotConverge
    from palmatch.errors import InputError as InputError
    from palmatch.errors import PalmatchError as PalmatchError
    from palmatch.matching import Guarantee as Guarantee
    from palmatch.matching import Matching as Matching
    from palmatch.matching import Outcome as Outcome
    from palmatch.matching import Trace as Trace
    from palmatch.methods import METHODS as METHODS
    from palmatch.methods import Method as Method
    from palmatch.methods import PreparedMethod as PreparedMethod
    from palmatch.methods import Settings as Settings
    from palmatch.methods import Workspace as Workspace
    from palmatch.methods import match as match
    from palmatch.methods import prepare as prepare
    from palmatch.methods import register as register
    from palmatch.problem import Problem as Problem
    from palmatch.problem import make_problem as make_problem
    from palmatch.session import Budget as Budget
    from palmatch.session import Session as Session
    from palmatch.studies.audit import audit as audit
    from palmatch.studies.compare import compare as compare
    from palmatch.studies.fairness import fairness as fairness
    from palmatch.studies.limit import limit as limit
    from palmatch.studies.plan import plan as plan
    from palmatch.studies.plan import plan_epsilon as plan_epsilon

__version__ = "0.2.0"

# Where public names are defined; names that are modules themselves under a home with a trailing dot.
_HOMES = {
    "palmatch.": "data",
    "palmatch.domain": "Domain",
    "palmatch.domains.": "bids mobility pairs papers scores table",
    "palmatch.errors": "DidNotConverge InputError PalmatchError",
    "palmatch.matching": "Guarantee Matching Outcome Trace",
    "palmatch.methods": "METHODS Method PreparedMethod Settings Workspace match prepare register",
    "palmatch.problem": "Problem make_problem",
    "palmatch.session": "Budget Session",
    "palmatch.studies.audit": "audit",
    "palmatch.studies.compare": "compare",
    "palmatch.studies.fairness": "fairness",
    "palmatch.studies.limit": "limit",
    "palmatch.studies.plan": "plan plan_epsilon",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = import_module(home + name) if home.endswith(".") else getattr(import_module(home), name)
    # The next use finds it without asking again.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
