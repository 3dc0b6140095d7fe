"""Every number that the paper states about its results, with the place where it states it.

Plain records, copied from the paper's text and from the comments of its source, where they are said to be such. Our own
numbers are not known here; a study looks them up by `key`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Unit: TypeAlias = Literal["%", "ε", ""]


@dataclass(frozen=True, slots=True)
class Published:
    """A number of the paper.

    Attributes
    ----------
    key:
        What a study calls its own number of the same meaning.
    what:
        What it says, in words.
    value, spread:
        The number and its standard deviation, None where none is stated; losses and shares in per cent.
    place:
        Where the paper states it.
    bound:
        Whether it is stated as a limit ("at most") and not as a measured value.
    """

    key: str
    what: str
    value: float
    spread: float | None
    unit: Unit
    place: str
    bound: bool = False


def loss_key(method: str, size: float, epsilon: float) -> str:
    """Return the key of a method's loss at an edge in metres or a number of areas."""
    return f"loss {method} {size:g} {epsilon:g}"


def improvement_key(edge: float, epsilon: float) -> str:
    """Return the key of how much less PALMA loses than Hungarian + geo-ind, in per cent of what the latter loses."""
    return f"improvement {edge:g} {epsilon:g}"


def _losses(method: str, name: str, *, of: dict[int, tuple[float, float]]) -> tuple[Published, ...]:
    """Return the losses at ε = 1; those between the smallest and the largest edge are in a comment of the source."""
    return tuple(
        Published(
            key=loss_key(method, edge, 1.0),
            what=f"{name} loses, ε = 1, ℓ = {edge} m",
            value=value,
            spread=spread,
            unit="%",
            place=_WELFARE if edge in (1000, 4000) else _SOURCE,
        )
        for edge, (value, spread) in of.items()
    )


def _improvements(epsilon: float, of: dict[int, float]) -> tuple[Published, ...]:
    told = f"PALMA saves of Hungarian + geo-ind's loss, ε = {epsilon:g}, ℓ = "
    return tuple(
        Published(improvement_key(edge, epsilon), f"{told}{edge} m", value, None, "%", _WELFARE)
        for edge, value in of.items()
    )


_WELFARE: Final = "Test-Case 1, Simulation Results: Social Welfare"
_SOURCE: Final = "Test-Case 1, Social Welfare: in a comment of the source"
_PRIVACY: Final = "Test-Case 1, Simulation Results: Privacy"
_SETTING: Final = "Test-Case 1, Setting"

MOBILITY: Final[tuple[Published, ...]] = (
    *_losses("published", "PALMA", of={1000: (13.9, 4.1), 2000: (22.0, 4.0), 3000: (26.2, 3.4), 4000: (31.7, 3.6)}),
    *_losses(
        "hungarian-geo",
        "Hungarian + geo-ind",
        of={1000: (20.2, 4.2), 2000: (33.1, 3.6), 3000: (39.8, 4.2), 4000: (43.7, 4.3)},
    ),
    *_losses(
        "alma-geo",
        "ALMA + geo-ind",
        of={1000: (26.1, 3.5), 2000: (37.6, 4.1), 3000: (43.5, 4.2), 4000: (47.1, 4.5)},
    ),
    Published("loss random", "the maximally private, random solution loses", 49.4, 2.0, "%", _WELFARE),
    Published("best welfare", "PALMA at best reaches, of the optimum", 86.0, None, "%", "Abstract; Conclusion"),
    *_improvements(1.0, of={1000: 30.9, 4000: 27.6}),
    *_improvements(0.75, of={1000: 45.9, 4000: 31.3}),
    Published("median epsilon 1000", "median ε of an agent, ℓ = 1000 m", 0.5, None, "ε", _PRIVACY),
    Published("max epsilon", "largest ε of any agent, at most", 1.0, None, "ε", _PRIVACY, bound=True),
    Published("above 1000", "agents with ε > 0.75, ℓ = 1000 m: 3,572 of 14,752", 24.2, None, "%", _PRIVACY),
    Published("below 1000", "agents with ε ≤ 0.5, ℓ = 1000 m: 6,759 of 14,752", 45.8, None, "%", _PRIVACY),
    Published("data points", "agents of all runs and batches together", 14752, None, "", _PRIVACY),
    Published("agents 05:00", "requests from 05:00:00 on, lowest demand", 17, None, "", _SETTING),
    Published("agents 08:00", "requests from 08:00:00 on, morning rush", 154, None, "", _SETTING),
    Published("agents 11:00", "requests from 11:00:00 on, mid-day low", 116, None, "", _SETTING),
    Published("agents 19:00", "requests from 19:00:00 on, evening rush", 174, None, "", _SETTING),
)

_LOST: Final = "Appendix, Test-Case 2, Simulation Results: Social Welfare"
_SPENT: Final = "Appendix, Test-Case 2, Simulation Results: Privacy"
_DATA: Final = "Appendix, Test-Case 2, Setting"
_SUMMARY: Final = "Test-Case 2: Paper Assignment"

# "Between 21.1 and 21.9": the paper does not say which of 3, 4 and 5 areas is which, so neither do the keys.
PAPERS: Final[tuple[Published, ...]] = (
    Published("least loss", "PALMA loses, ε = 1, least of 3, 4, 5 areas", 21.1, 1.8, "%", _LOST),
    Published("most loss", "PALMA loses, ε = 1, most of 3, 4, 5 areas", 21.9, 1.8, "%", _LOST),
    Published("most loss", "PALMA loses less than", 22.0, None, "%", _SUMMARY, bound=True),
    Published("loss random", "the maximally private, random solution loses", 71.6, 2.5, "%", _LOST),
    Published("loss random", "the maximally private solution loses", 71.5, None, "%", _SUMMARY),
    Published("median epsilon", "median ε of an agent", 0.36, None, "ε", _SPENT),
    Published("least above", "agents with ε > 0.75, least of 3, 4, 5 areas", 0.9, None, "%", _SPENT),
    Published("most above", "agents with ε > 0.75, most of 3, 4, 5 areas", 2.1, None, "%", _SPENT),
    Published("max epsilon", "largest ε of any agent, at most", 1.0, None, "ε", _SPENT, bound=True),
    Published("reviewers", "reviewers", 189, None, "", _DATA),
    Published("papers", "papers", 73, None, "", _DATA),
)


@dataclass(frozen=True, slots=True)
class Own:
    """A number of ours: a value, and its standard deviation where it has one; in the unit of the published one."""

    value: float
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """A number of the paper and ours beside it; `own` is None where this study has no such number."""

    published: Published
    own: Own | None

    @property
    def difference(self) -> float | None:
        """Ours minus theirs, in the unit of the number."""
        return None if self.own is None else self.own.value - self.published.value

    @property
    def deviations(self) -> float | None:
        """The difference in published standard deviations, where the paper states one."""
        if self.difference is None or self.published.spread is None:
            return None
        return self.difference / self.published.spread


def beside(numbers: tuple[Published, ...], own: dict[str, Own]) -> tuple[Beside, ...]:
    """Put our numbers beside the paper's."""
    return tuple(Beside(number, own.get(number.key)) for number in numbers)
