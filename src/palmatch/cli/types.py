"""palmatch types: regions and possible types from public records, before anything private is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palmatch.cli import options, show
from palmatch.data.files import identifiers, read_sheet, with_header, write_rows
from palmatch.data.scores import MATRIX_SUFFIX, read_scores
from palmatch.errors import InputError
from palmatch.studies.archive import Derived, from_scores, from_taxonomy, is_taxonomy, named_source, topics_of


def types(
    papers: Path,
    *,
    source: Annotated[Path, typer.Option("--from")],
    out: Path,
    archive_papers: Path | None = None,
    regions: options.Positive = 1,
    most_types: Annotated[int, typer.Option("--types", min=1)] = 64,
    score_range: str = "0,1",
    users_out: Path | None = None,
) -> None:
    """Derive regions and possible types of reviewers from public records, never from the agents to be matched.

    Parameters
    ----------
    papers:
        The papers to be matched: id, and topic (semicolons between several).
    source:
        Public records: scores `paper,user,score` without a header, or a taxonomy with topic, parent.
    out:
        Where types go: .csv or .parquet, for match --types.
    archive_papers:
        The archive's own papers, if they are others: id and topic.
    regions:
        How many regions an archive makes.
    most_types:
        Most types of a region of an archive.
    score_range:
        The smallest and largest score that there may be.
    users_out:
        Where the regions of the archive's users go: user, region.

    Examples
    --------
    Example: palmatch types papers.csv --from last_year.csv --archive-papers last_papers.csv --regions 4
    --out types.csv --users-out regions.csv

    Example: palmatch types papers.csv --from taxonomy.csv --out types.csv
    """
    show.check_outputs([papers, source, archive_papers], out=out)
    if users_out is not None:
        show.check_outputs([papers, source, archive_papers, out], out=users_out)
    sheet = read_sheet(papers)
    ids, topics = identifiers(sheet), topics_of(sheet)
    bounds, archive = options.score_range(score_range), None
    records = None if source.suffix.lower() == MATRIX_SUFFIX else read_sheet(source, header=False)
    if records is not None and (records.lines is None or len(records.lines) > 1):
        records = with_header(records)
    if records is not None and is_taxonomy(records):
        derived = from_taxonomy(records, _need_topics(papers, topics))
    elif archive_papers is None:
        archive = read_scores([source], bounds=bounds, papers=ids, listed_in=f"{papers} (or give --archive-papers)")
        derived = from_scores(archive, regions=regions, most_types=most_types)
    else:
        listed = read_sheet(archive_papers)
        archive = read_scores([source], bounds=bounds, papers=identifiers(listed), listed_in=str(archive_papers))
        old, new = _need_topics(archive_papers, topics_of(listed)), _need_topics(papers, topics)
        derived = from_scores(archive, regions=regions, most_types=most_types, archive_topics=old, topics=new)
    if users_out is not None and not derived.region_of:
        raise InputError("--users-out goes with an archive of scores: a taxonomy has no users.")
    named = named_source(source, archive)
    write_rows(out, derived.columns(ids, named))
    if users_out is not None:
        write_rows(users_out, dict(zip(("user", "region"), zip(*derived.region_of.items(), strict=True), strict=True)))
    _print_summary(derived, named, out, users_out)


def _need_topics(path: Path, topics: tuple[tuple[str, ...], ...] | None) -> tuple[tuple[str, ...], ...]:
    if topics is None:
        raise InputError(f"{path}: found no column 'topic', expected the topics of each paper; add the column.")
    return topics


def _print_summary(derived: Derived, source: str, out: Path, users_out: Path | None) -> None:
    names = list(dict.fromkeys(derived.regions))
    show.say(
        f"{show.counted(len(names), 'region')} with {show.counted(len(derived.names), 'possible type')} from {source}"
    )
    rows = [
        (name, f"{derived.regions.count(name):,}", f"{list(derived.region_of.values()).count(name):,}")
        for name in names
    ]
    show.show_table(("region", "types", "users"), rows)
    if alone := sum(derived.regions.count(name) == 1 for name in names):
        show.say(
            f"{show.counted(alone, 'region')} with one possible type: nothing is guaranteed there beyond the region, "
            "which tells everything; derive fewer regions."
        )
    show.say(
        "A reviewer's region is public: the archive tells it, or the reviewer declares it. Where it follows from what "
        "is private, no guarantee covers it."
    )
    show.say(f"Types are in {out}." + (f" Regions of the archive's users are in {users_out}." if users_out else ""))
