import base64
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import palmatch as pm
from palmatch.report.page import write_report
from palmatch.studies.compare import compare

METHODS = ("published", "noise", "hungarian", "random")


@pytest.fixture(scope="module")
def night():
    batch = pm.data.city.batch(5.0, seed=3)
    return compare(pm.mobility.problem(batch.requests, batch.vehicles), METHODS, runs=2, seed=0, edge=1000)


def test_an_epsilon_on_the_page_is_never_below_what_it_is(night, tmp_path):
    row = replace(night.rows[0], epsilon_median=0.6210001, epsilon_max=1.004)
    assert "0.63 / 1.01" in report(tmp_path, replace(night, rows=[row, *night.rows[1:]]))[0]


def report(folder, comparison, **changes):
    given: dict[str, object] = {
        "title": "A night", "settings": pm.Settings(), "seed": 7, "command": "palmatch demo --out 'my folder'",
    }  # fmt: skip
    written = write_report(folder, comparison, **(given | changes))
    # As a browser shows it: lines of the source are folded.
    return " ".join(written[0].read_text(encoding="utf-8").split()), written


@pytest.fixture(scope="module")
def told(night, tmp_path_factory):
    traces = {"noise": pm.match(night.problem, "noise", seed=0, trace=True)}
    folder = tmp_path_factory.mktemp("report") / "new" / "folder"
    return report(folder, night, traces=traces, outline=pm.data.city.outline())


class Tags(HTMLParser):
    """Collects the tags of a page, refusing any that is left open."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags_of(text):
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert not tags.open
    return tags.seen


def test_the_page_and_its_figures_are_written_and_named(told):
    _, written = told
    names = ["report.html", "map.png", "map-optimum.png", "loss.png", "served.png", "epsilon.png", "rounds.png"]
    assert [path.name for path in written] == names
    assert all(path.stat().st_size > 1000 for path in written)


def test_the_page_loads_nothing_from_elsewhere(told):
    text, written = told
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text
    assert "url(" not in text
    tags = tags_of(text)
    assert not {tag for tag, _ in tags} & {"script", "iframe", "object", "embed", "video", "audio"}
    addresses = [marks[name] for _, marks in tags for name in ("src", "href", "srcset") if name in marks]
    assert all(address is not None and address.startswith("data:") for address in addresses)
    pictures = [marks["src"] or "" for tag, marks in tags if tag == "img"]
    inlined = [base64.b64decode(picture.removeprefix("data:image/png;base64,")) for picture in pictures]
    assert inlined == [path.read_bytes() for path in written[1:]]
    assert all(marks.get("alt") for tag, marks in tags if tag == "img")


def test_the_page_fits_a_phone_and_a_dark_theme(told):
    text, _ = told
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_the_page_tells_guarantee_table_settings_and_command(night, told):
    text, _ = told
    guarantee = night.runs["published"][0].matching.guarantee
    assert f"{night.problem.agents} agents" in text
    assert "PLDP, ε at most 1, δ = 1e-05" in text
    for sentence in (guarantee.statement, *guarantee.assumptions, *guarantee.not_covered):
        assert sentence.replace("'", "&#39;") in text.replace("<code>", "`").replace("</code>", "`")
    for row in night.rows:
        assert f"{100 * row.loss_mean:.1f}" in text
        assert pm.METHODS[row.method].help.replace("'", "&#39;") in text
    assert "palmatch demo --out &#39;my folder&#39;" in text
    assert "<dt>seed</dt><dd>7 (a simulation)</dd>" in text
    assert "not to be published" in text
    assert not re.search(r"\b(nan|inf)\b", re.sub(r'src="[^"]*"', "", text))


def test_one_agent_and_one_vehicle_make_a_report(tmp_path):
    problem = pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.98)])
    text, _ = report(tmp_path, compare(problem, METHODS, runs=1, seed=0))
    assert "1 agent in 1 square region was to be matched with 1 vehicle" in text
    assert "(in one run)" in text


def test_agents_that_go_without_are_counted(tmp_path):
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles[:5])
    text, _ = report(tmp_path, compare(problem, METHODS, runs=2, seed=0))
    assert f"gave 5 of {problem.agents} agents a vehicle" in text
    assert f"5 of {problem.agents}</td>" in text


def test_reviewers_get_no_map(tmp_path):
    marks = np.random.default_rng(1).integers(0, 2, (12, 5))
    marks[:, 0] |= marks.sum(axis=1) == 0
    problem = pm.papers.problem(marks[:6], marks[6:], areas=3, draw_primary=True, seed=0)
    text, written = report(tmp_path, compare(problem, METHODS, runs=2, seed=0))
    assert "map.png" not in [path.name for path in written]
    assert "map" not in re.sub(r'src="[^"]*"', "", text)
    assert "6 reviewers" in text
    assert "have more than 3 areas" in text


def test_agents_that_the_guarantee_leaves_out_are_named_and_escaped(tmp_path):
    names = [f"<b>agent {n}</b>" for n in range(25)]
    problem = pm.table.problem([[0.5, 0.6]] * 25, ["here"] * 25, {"here": [[0.4, 0.4]]}, agent_ids=names)
    text, _ = report(
        tmp_path, compare(problem, ["published"], runs=1, seed=0), title="<script>alert('x')</script> & more"
    )
    assert "&lt;b&gt;agent 0&lt;/b&gt;" in text
    assert ", and 5 more." in text
    assert "<b>" not in text
    assert "<script" not in text
    assert "<title>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; more</title>" in text


def test_a_method_without_privacy_guarantees_none_and_has_no_histogram(tmp_path):
    problem = pm.table.problem([[0.5, 0.6]], ["here"], {"here": [[0.5, 0.6]]})
    text, written = report(tmp_path, compare(problem, ["hungarian"], runs=1, seed=0), headline="hungarian")
    assert "It guarantees no privacy." in text
    assert [path.name for path in written] == ["report.html", "loss.png", "served.png"]


def test_every_method_is_told_how_evenly_it_serves(tmp_path):
    rows = [[0.9, 0.3], [0.3, 0.9]]
    problem = pm.table.problem(rows, ["here"] * 2, {"here": rows}, agent_ids=["`a`", "`<i>`"])
    comparison = compare(problem, ["hungarian", "random"], runs=1, seed=0)
    text, _ = report(tmp_path, comparison, headline="hungarian", notes=("See `match` and `<i>`.",))
    evenly = text.partition("<h3>How evenly all are served</h3>")[2].partition("</table>")[0]
    assert evenly.index("hungarian") < evenly.index("random")
    assert "0.90 / 0.90" in evenly
    assert "See <code>match</code> and <code>&lt;i&gt;</code>." in text


def test_a_method_without_a_budget_guarantees_everything_but_the_region(night, tmp_path):
    assert "nothing is learnt about an agent beyond its region" in report(tmp_path, night, headline="noise")[0]


def test_own_budgets_are_said_to_differ(tmp_path):
    batch = pm.data.city.batch(5.0, seed=3)
    budgets = np.where(np.arange(len(batch.requests)) % 2, 1.0, 2.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, epsilon=budgets)
    text, _ = report(tmp_path, compare(problem, ["published"], runs=1, seed=0))
    assert "some agents brought smaller ones" in text


def test_mistakes_are_told_in_one_sentence(night, tmp_path):
    with pytest.raises(pm.InputError, match="no 'alma' among the compared methods"):
        report(tmp_path, night, headline="alma")
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(pm.InputError, match="taken: cannot be made a folder"):
        report(taken, night)
