"""The page of a reproduced study: every published number beside ours, in one file that loads no other."""

import re
from dataclasses import replace

import polars as pl
import pytest

from palmatch.report.reproduction import NOTHING, Provenance, number_line, within, write_mobility, write_papers
from palmatch.studies.reproduce import (
    MOBILITY,
    PAPERS,
    Beside,
    Own,
    beside,
    mobility_of_city,
    papers_of_conference,
)

TOLD = Provenance(runs=2, seed=7, command="palmatch reproduce mobility --trips 'my trips.csv'", version="1.2")


def few(records):
    return replace(records, batches=records.batches[:1])


@pytest.fixture(scope="module")
def city():
    records = few(mobility_of_city(seed=0))
    cells = records.tasks(edges=(1000, 2000), runs=2, seed=7)
    return records, pl.concat([cell.work(*cell.arguments) for cell in cells])


@pytest.fixture(scope="module")
def conference():
    records = papers_of_conference(seed=0, reviewers=24, papers=9)
    cells = records.tasks(areas=(2, 3), runs=2, seed=7)
    return records, pl.concat([cell.work(*cell.arguments) for cell in cells])


@pytest.fixture(scope="module")
def page(city, tmp_path_factory):
    return write_mobility(tmp_path_factory.mktemp("page"), *city, TOLD)


def text_of(path):
    return " ".join(path.read_text(encoding="utf-8").split())


def test_the_figures_of_the_paper_lie_beside_the_page_as_png_and_svg(page):
    names = ["regions", "requests", "losses", "epsilon", "histograms"]
    assert [path.name for path in page] == ["report.html", *(f"{name}.png" for name in names)]
    for path in page[1:]:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in text_of(path.with_suffix(".svg"))


def test_the_page_loads_nothing_from_elsewhere_and_leaves_no_tag_open(page):
    text = text_of(page[0])
    for word in ("http://", "https://", "@import", "url(", "<script"):
        assert word not in text
    assert text.count("data:image/png;base64,") == len(page) - 1
    for tag in ("table", "tr", "td", "section", "figure", "ul", "li", "div", "p", "style"):
        assert len(re.findall(rf"<{tag}[ >]", text)) == text.count(f"</{tag}>"), tag
    assert not re.search(r"\b(nan|inf|None)\b", re.sub(r'src="[^"]*"', "", text))


def test_every_published_number_is_on_the_page_with_its_place(page):
    text = text_of(page[0]).replace("&#39;", "'").replace("&gt;", ">")
    for number in MOBILITY:
        assert number.what in text
        assert number.place in text
    assert "13.9 ± 4.1" in text
    assert "47.1 ± 4.5" in text
    assert "14,752" in text


def test_the_page_says_which_records_and_settings_it_is_based_on(page):
    text = text_of(page[0]).replace("&#39;", "'")
    assert "<title>The paper's mobility study, on a synthetic city</title>" in text
    assert "Danassis" in text
    assert TOLD.command in text
    assert "<dt>seed</dt><dd>7 (a simulation)</dd>" in text
    assert "over all runs of all batches together" in text
    assert "What was left out, and why" in text
    assert "PALMA loses, ε = 1, ℓ = 4000 m" in text.split("without a counterpart in this run", 1)[1]


def test_on_a_phone_every_number_has_its_name(page):
    text = text_of(page[0])
    assert "@media screen and (max-width: 44rem)" in text
    numbers = re.findall(r'<td class="number[^>]*>', text)
    assert numbers
    assert all('data-name="' in number for number in numbers)
    for name in ("the paper", "ours", "ℓ = 1000 m", "median"):
        assert f'data-name="{name}"' in text


def test_what_the_records_lack_is_said_before_anything_else(city, page, tmp_path):
    records, rows = city
    assert "What the records seem to lack" not in text_of(page[0])
    lacking = replace(records, warnings=("The file <ends> here.",))
    text = text_of(write_mobility(tmp_path, lacking, rows, TOLD)[0])
    assert "<li>The file &lt;ends&gt; here.</li>" in text.split("What differs from the paper")[0]


def test_other_days_than_the_paper_s_are_said_to_be_so(city, tmp_path):
    records, rows = city
    batch = replace(records.batches[0], name="2016-01-29 09:19:00")
    real = replace(records, made_up=False, source="trips.csv", batches=(batch,))
    text = text_of(write_mobility(tmp_path, real, rows, TOLD)[0])
    assert "<title>The paper&#39;s mobility study, on trips.csv</title>" in text
    assert "of other days and times than the paper's" in text.split("What differs from the paper</h2>")[1][:300]


def test_the_papers_page_has_both_figures(conference, tmp_path):
    records, rows = conference
    written = write_papers(tmp_path, records, rows, TOLD)
    assert [path.name for path in written] == ["report.html", "losses.png", "epsilon.png"]
    text = text_of(written[0]).replace("&#39;", "'").replace("&gt;", ">")
    assert "The paper's paper-assignment study, on a synthetic conference" in text
    for number in PAPERS:
        assert number.what in text


def test_differences_are_told_in_published_standard_deviations():
    loss, points = MOBILITY[0], next(number for number in MOBILITY if number.key == "data points")
    line = number_line(Beside(loss, Own(20.1, 1.0)))
    assert (line.published, line.own, line.difference, line.deviations, line.far) == (
        "13.9 ± 4.1\N{NO-BREAK SPACE}%", "20.1 ± 1.0\N{NO-BREAK SPACE}%", "+6.2", "+1.51", False,
    )  # fmt: skip
    assert number_line(Beside(loss, Own(1.0))).far
    assert number_line(Beside(loss, None)).own == NOTHING
    assert number_line(Beside(points, Own(14000))).difference == "−752"
    assert number_line(Beside(points, Own(14752))).difference == "0"
    assert number_line(Beside(loss, Own(13.87))).difference == "0.0"
    limit = next(number for number in PAPERS if number.bound and number.value == 22.0)
    assert number_line(Beside(limit, Own(21.0))).difference == "kept"
    missed = number_line(Beside(limit, Own(25.5)))
    assert (missed.difference, missed.met, missed.far) == ("not kept, +3.5", False, True)
    assert "None of the numbers" in within(beside(MOBILITY, {}))
    assert "Of the 1 published numbers" in within(beside(MOBILITY, {loss.key: Own(13.0)}))
