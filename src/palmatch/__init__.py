"""Match agents to resources without learning what the agents want."""

from palmatch import data
from palmatch.domains import mobility, papers, table
from palmatch.errors import DidNotConverge, InputError, PalmatchError
from palmatch.guarantee import Guarantee
from palmatch.methods import METHODS, Ground, Settings, match, prepare
from palmatch.problem import Domain, Matching, Partition, Problem, Utility, make_problem
from palmatch.studies.compare import compare
from palmatch.trace import Outcome, Trace

__all__ = [
    "METHODS",
    "DidNotConverge",
    "Domain",
    "Ground",
    "Guarantee",
    "InputError",
    "Matching",
    "Outcome",
    "PalmatchError",
    "Partition",
    "Problem",
    "Settings",
    "Trace",
    "Utility",
    "compare",
    "data",
    "make_problem",
    "match",
    "mobility",
    "papers",
    "prepare",
    "table",
]
__version__ = "0.1.0"
