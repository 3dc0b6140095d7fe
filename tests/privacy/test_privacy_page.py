"""The page with the proofs names, for each step, a function and a test that exist."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"


def test_every_step_of_the_proofs_is_carried_by_a_function_and_tried_by_a_test():
    links = re.findall(r"\[`(\w+)`\]\((\.\./(?:src|tests)/[^)]+\.py)\)", PAGE.read_text())
    assert len(links) > 25
    for name, target in links:
        assert f"def {name}(" in (PAGE.parent / target).read_text(), (name, target)


def test_tables_on_the_page_fit_a_narrow_screen():
    assert max(len(line) for line in PAGE.read_text().splitlines() if line.startswith("|")) <= 80
