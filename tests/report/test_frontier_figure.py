"""The picture of losses over budgets shows every method where it is, and its sentence says what was measured."""

import numpy as np
import pytest

from palmatch.report.figures import frontier_figure
from palmatch.report.results import loss_in_words
from palmatch.report.style import PRIVATE, REGION_ONLY, save_both
from palmatch.studies.compare import Comparison, LossParts, Row, Spread

EPSILONS = (0.5, 1.0, 8.0)


def row(method, epsilon, loss, *, rounds, most):
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

    def __init__(self, loss):
        self.loss = loss


def compared(losses, *, most=8.0):
    rows = [
        row(name, e, x, rounds=0, most=0.0 if len(own) == 1 else most)
        for name, own in losses.items()
        for e, x in zip(EPSILONS if len(own) > 1 else (float("nan"),), own, strict=True)
    ]
    played = {name: own for name, own in losses.items() if name != "limit"}
    runs = {name: tuple(Lost(x + d) for x in own for d in (-0.01, 0.01)) for name, own in played.items()}
    return Comparison(None, tuple(rows), runs)


LOSSES: dict[str, tuple[float, ...]] = {
    "once": (0.2, 0.1, 0.02),
    "published": (0.3, 0.3, 0.29),
    "hungarian-once": (0.19, 0.08, 0.01),
    "noise": (0.31,),
    "hungarian-region": (0.21,),
}
FOUND = compared(LOSSES)


def drawn():
    (axes,) = frontier_figure(FOUND, "a town").axes
    return {str(one.get_label()): one for one in axes.lines}


def test_between_two_budgets_no_more_is_shaded_than_the_limit_of_the_larger_one_proves():
    (axes,) = frontier_figure(compared({"limit": (0.15, 0.05, 0.0)} | LOSSES), "a town").axes
    (area,) = (one for one in axes.collections if one.get_label() == "_area")
    shaded = area.get_paths()[0]
    for epsilon, most in ((0.48, 15), (0.5, 15), (0.51, 5), (0.99, 5), (1.0, 5)):
        assert shaded.contains_point((epsilon - 1e-6, most - 0.01))
        assert not shaded.contains_point((epsilon, most + 0.01))
    assert not shaded.contains_point((1.01, 0.01))
    (limit,) = (one for one in axes.lines if one.get_label() == "limit")
    np.testing.assert_allclose(limit.get_xdata()[1:], EPSILONS)
    np.testing.assert_allclose(limit.get_ydata()[1:], (15, 5, 0), atol=1e-12)


def test_points_are_at_their_budgets_and_losses_in_per_cent():
    for method in ("once", "published", "hungarian-once"):
        np.testing.assert_allclose(drawn()[method].get_xdata(), EPSILONS)
        np.testing.assert_allclose(drawn()[method].get_ydata(), [100 * loss for loss in LOSSES[method]])


def test_flat_methods_cross_the_whole_figure_without_points():
    (axes,) = frontier_figure(FOUND, "a town").axes
    for method, loss in (("noise", 31), ("hungarian-region", 21)):
        np.testing.assert_allclose(drawn()[method].get_ydata(), [loss, loss])
        np.testing.assert_allclose(drawn()[method].get_xdata(), axes.get_xlim())
        assert drawn()[method].get_marker() == ""


def test_a_centre_is_dashed_and_colours_are_kinds_of_privacy():
    lines = drawn()
    assert {name for name, one in lines.items() if one.get_linestyle() == "--"} == {
        "hungarian-once",
        "hungarian-region",
    }
    assert {lines[name].get_color() for name in ("once", "published", "hungarian-once")} == {PRIVATE.colour}
    assert {lines[name].get_color() for name in ("noise", "hungarian-region")} == {REGION_ONLY.colour}
    assert len({lines[name].get_marker() for name in ("once", "published", "hungarian-once")}) == 3


def test_every_line_is_named_at_its_end_and_the_heading_says_what_it_means():
    figure = frontier_figure(FOUND, "a town")
    names = " ".join(text.get_text() for text in figure.axes[0].texts)
    for method, losses in LOSSES.items():
        assert f"{method}  {100 * losses[-1]:.1f}" in names
    heading = " ".join(text.get_text() for text in figure.texts).replace("\N{NO-BREAK SPACE}", " ")
    assert "a town; mean of 2 runs" in heading
    assert "At ε = 1, once loses 10.0 ± 1.4 % of the optimum, and a centre that sees the same reports" in heading
    assert "(hungarian-once) 8.0 ± 1.4 %; the difference, 2.0 ± 0.0 %, is what doing without a centre costs." in heading


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
def test_the_sentence_claims_no_more_than_was_played(told, said):
    sentence = loss_in_words(told).replace("\N{NO-BREAK SPACE}", " ")
    assert sentence.startswith("At ε = 2, ")
    assert sentence.endswith(said)


def test_both_files_are_the_same_bytes_every_time(tmp_path):
    written = [[path.read_bytes() for path in save_both(frontier_figure(FOUND, "a"), tmp_path, "f")] for _ in range(2)]
    assert written[0] == written[1]
