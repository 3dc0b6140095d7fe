"""What agents, resources and regions are called in each domain; draws nothing, so that words need no figures."""

from __future__ import annotations

from dataclasses import dataclass

from palmatch.domains.mobility import City
from palmatch.domains.papers import Conference
from palmatch.domains.scores import ScoreTable
from palmatch.problem import Problem


@dataclass(frozen=True, slots=True)
class Words:
    """What agents, resources and regions are called in a domain, one and many."""

    agent: tuple[str, str] = ("agent", "agents")
    resource: tuple[str, str] = ("resource", "resources")
    region: tuple[str, str] = ("region", "regions")


def words_of(problem: Problem) -> Words:
    """Return what agents, resources and regions are called in a domain."""
    if isinstance(problem.domain, City):
        return Words(("agent", "agents"), ("vehicle", "vehicles"), ("square region", "square regions"))
    if isinstance(problem.domain, Conference):
        return Words(("reviewer", "reviewers"), ("paper", "papers"), ("primary area", "primary areas"))
    if isinstance(problem.domain, ScoreTable):
        return Words(("reviewer", "reviewers"), ("paper", "papers"))
    return Words(resource=("partner", "partners")) if problem.pairs else Words()
