"""The pages that lead from the paper and from the proofs into the code name functions and tests that exist."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["privacy.md", "paper.md"])
def test_every_step_on_the_page_is_carried_by_a_function_that_exists(page):
    links = re.findall(r"\[`(?:[A-Z]\w+\.)?(\w+)`\]\((\.\./(?:src|tests)/[^)]+\.py)\)", (DOCS / page).read_text())
    assert len(links) > 25
    for name, target in links:
        text = (DOCS / page).parent.joinpath(target).read_text()
        assert re.search(rf"^ *(?:def {name}\(|class {name}\b)", text, flags=re.MULTILINE), (name, target)


def test_tables_of_the_proofs_fit_a_narrow_screen():
    lines = (DOCS / "privacy.md").read_text().splitlines()
    assert max(len(line) for line in lines if line.startswith("|")) <= 80
