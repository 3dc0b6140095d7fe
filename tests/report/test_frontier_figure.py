"""The picture of a frontier shows every method where it is, and its sentence says what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from palmatch.report.frontier_figure import frontier_figure, words
from palmatch.report.style import PRIVATE, REGION_ONLY, save_both
from palmatch.studies.compare import Row
from palmatch.studies.frontier import Frontier, Line, LossParts, Spread

EPSILONS = (0.5, 1.0, 8.0)


def row(method: str, epsilon: float, loss: float, *, rounds: float, most: float) -> Row:
    return Row(
        method=method,
        edge=1000.0,
        areas=None,
        epsilon=epsilon,
        delta=1e-5,
        runs=2,
        loss_mean=loss,
        loss_sd=0.01,
        epsilon_median=most,
        epsilon_max=most,
        rounds_mean=rounds,
        matched_mean=9.0,
        seconds_mean=0.1,
    )


class Lost:
    """A run of which only the loss is known."""

    def __init__(self, loss: float) -> None:
        self.loss = loss


def line(method: str, losses: tuple[float, ...], *, rounds: float, most: float = 8.0) -> Line:
    flat = len(losses) == 1
    budgets = (float("nan"),) if flat else EPSILONS
    rows = tuple(row(method, e, x, rounds=rounds, most=most) for e, x in zip(budgets, losses, strict=True))
    runs = tuple((Lost(loss - 0.01), Lost(loss + 0.01)) for loss in losses)
    return Line(method, flat, rows, runs)  # type: ignore[arg-type]


FOUND = Frontier(
    problem=None,  # type: ignore[arg-type]
    epsilons=EPSILONS,
    lines=(
        line("once", (0.2, 0.1, 0.02), rounds=30),
        line("published", (0.3, 0.3, 0.29), rounds=90),
        line("hungarian-once", (0.19, 0.08, 0.01), rounds=0),
        line("noise", (0.31,), rounds=80, most=0.0),
        line("hungarian-region", (0.21,), rounds=0, most=0.0),
    ),
)


def drawn() -> dict[str, Line2D]:
    (axes,) = frontier_figure(FOUND, "a town").axes
    return {str(one.get_label()): one for one in axes.lines}


def test_between_two_budgets_no_more_is_shaded_than_the_limit_of_the_larger_one_proves() -> None:
    limits = tuple(row("limit", e, x, rounds=0, most=e) for e, x in zip(EPSILONS, (0.15, 0.05, 0.0), strict=True))
    (axes,) = frontier_figure(replace(FOUND, limit_rows=limits), "a town").axes
    (area,) = (one for one in axes.collections if one.get_label() == "_area")
    shaded = area.get_paths()[0]
    for epsilon, most in ((0.48, 15), (0.5, 15), (0.51, 5), (0.99, 5), (1.0, 5)):
        assert shaded.contains_point((epsilon - 1e-6, most - 0.01))
        assert not shaded.contains_point((epsilon, most + 0.01))
    assert not shaded.contains_point((1.01, 0.01))
    (limit,) = (one for one in axes.lines if one.get_label() == "limit")
    np.testing.assert_allclose(limit.get_xdata()[1:], EPSILONS)
    np.testing.assert_allclose(limit.get_ydata()[1:], (15, 5, 0), atol=1e-12)


def test_points_are_at_their_budgets_and_losses_in_per_cent() -> None:
    for one in FOUND.lines[:3]:
        np.testing.assert_allclose(drawn()[one.method].get_xdata(), EPSILONS)
        np.testing.assert_allclose(drawn()[one.method].get_ydata(), [100 * row.loss_mean for row in one.rows])


def test_flat_methods_cross_the_whole_figure_without_points() -> None:
    (axes,) = frontier_figure(FOUND, "a town").axes
    for method, loss in (("noise", 31), ("hungarian-region", 21)):
        np.testing.assert_allclose(drawn()[method].get_ydata(), [loss, loss])
        np.testing.assert_allclose(drawn()[method].get_xdata(), axes.get_xlim())
        assert drawn()[method].get_marker() == ""


def test_a_centre_is_dashed_and_colours_are_kinds_of_privacy() -> None:
    lines = drawn()
    assert {name for name, one in lines.items() if one.get_linestyle() == "--"} == {
        "hungarian-once",
        "hungarian-region",
    }
    assert {lines[name].get_color() for name in ("once", "published", "hungarian-once")} == {PRIVATE.colour}
    assert {lines[name].get_color() for name in ("noise", "hungarian-region")} == {REGION_ONLY.colour}
    assert len({lines[name].get_marker() for name in ("once", "published", "hungarian-once")}) == 3


def test_every_line_is_named_at_its_end_and_the_heading_says_what_it_means() -> None:
    figure = frontier_figure(FOUND, "a town")
    names = " ".join(text.get_text() for text in figure.axes[0].texts)
    for one in FOUND.lines:
        assert f"{one.method}  {100 * one.rows[-1].loss_mean:.1f}" in names
    heading = " ".join(text.get_text() for text in figure.texts).replace("\N{NO-BREAK SPACE}", " ")
    assert "a town; mean of 2 runs" in heading
    assert "At ε = 1, once loses 10.0 ± 1.4 % of the optimum, and a centre that sees the same reports" in heading
    assert "(hungarian-once) 8.0 ± 1.4 %; the difference, 2.0 ± 0.0 %, is what doing without a centre costs." in heading


def test_one_budget_and_one_run_can_be_drawn() -> None:
    alone = Line("once", False, FOUND.lines[0].rows[:1], FOUND.lines[0].runs[:1])
    (axes,) = frontier_figure(Frontier(FOUND.problem, (0.5,), (alone,)), "a town").axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.5"]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (LossParts("palma", 2.0, False, Spread(0.1, 0.01)), "what privacy and doing without a centre cost together."),
        (LossParts("hungarian-once", 2.0, True, Spread(0.1, 0.01)), "10.0 ± 1.0 % of the optimum: what privacy costs."),
        (
            LossParts("once", 2.0, False, Spread(0.1, 0.01), Spread(0.12, 0.01), Spread(-0.02, 0.01)),
            "12.0 ± 1.0 %; the difference, -2.0 ± 1.0 %, is what doing without a centre costs.",
        ),
    ],
)
def test_the_sentence_claims_no_more_than_was_played(told: LossParts, said: str) -> None:
    sentence = words(told).replace("\N{NO-BREAK SPACE}", " ")
    assert sentence.startswith("At ε = 2, ")
    assert sentence.endswith(said)


def test_both_files_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    written = [[path.read_bytes() for path in save_both(frontier_figure(FOUND, "a"), tmp_path, "f")] for _ in range(2)]
    assert written[0] == written[1]
