"""The audit of a stated guarantee: games are played, and what an observer learns is held against what is claimed.

`blackbox` knows nothing but how to play; `analytic` knows mechanism and public tables, and no private input.
"""

from palmatch.studies.audit.analytic import Belief, belief
from palmatch.studies.audit.blackbox import Attack, Bound, Claim
from palmatch.studies.audit.run import GAMES, Audit, audit

__all__ = ["GAMES", "Attack", "Audit", "Belief", "Bound", "Claim", "audit", "belief"]
