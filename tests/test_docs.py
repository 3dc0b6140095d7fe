"""What the documentation says is true: its Python and commands run, its links lead somewhere, lists are complete."""

import contextlib
import dataclasses
import doctest
import importlib
import importlib.util
import inspect
import io
import pydoc
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

import palmatch as pm
from pages import (
    COMMANDS,
    INSTEAD,
    OPERATE,
    OTHERS,
    PAGES,
    ROOT,
    SMALLER,
    TIMES,
    commands_of,
    write_trips,
)
from palmatch.cli import subcommand
from running import command_words, run

COMMANDS_PAGE = ROOT / "docs" / "commands.md"


# What the reference shows: each name, and its members where only some of them are shown.
REFERENCE = [
    (name, re.findall(r"\w+", shown[1]) if (shown := re.search(r"members: \[(.*?)\]", options)) else None)
    for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
    for name, options in re.findall(r"^::: (\S+)\n((?: {4}.*\n)?)", page.read_text(), flags=re.MULTILINE)
]


# What the docstring of every name has, beside its parameters and what it returns.
SECTIONS = ("Examples", "References")


def has_section(found, section):
    return re.search(rf"^{section}\n-+\n\S", inspect.getdoc(found) or "", flags=re.MULTILINE) is not None


def names(found, name):
    text = inspect.getdoc(found) or ""
    return re.search(rf"^(?:\w+, )*{name}(?:, \w+)*:?$", text, flags=re.MULTILINE) is not None


def lacks(found, members):
    """Yield what the docstrings of a name of the reference lack."""
    if inspect.ismodule(found):
        # Examples are at the functions, where some are shown.
        yield from without(found, ["References"] if members else SECTIONS)
        for member in members or ():
            yield from (f"{member}: {what}" for what in lacks(getattr(found, member), None))
    elif inspect.isclass(found):
        yield from of_class(found, members)
    elif inspect.isroutine(found):
        yield from of_call(found)
    else:
        yield from without(found, SECTIONS)
        if callable(found):
            yield from of_call(found.__call__)


def without(found, sections):
    yield from (section for section in sections if not has_section(found, section))


def of_call(found, *, sections=SECTIONS):
    signature = inspect.signature(found)
    for parameter in signature.parameters:
        if parameter not in ("self", "cls") and not (has_section(found, "Parameters") and names(found, parameter)):
            yield f"parameter {parameter}"
    if signature.return_annotation not in (None, "None") and not has_section(found, "Returns"):
        yield "Returns"
    for entry in re.findall(r"^(\w+(?:, \w+)+):$", inspect.getdoc(found) or "", flags=re.MULTILINE):
        told = [signature.parameters[name] for name in entry.split(", ") if name in signature.parameters]
        # The site gives all of them the type and the default of the first.
        if len({(str(parameter.annotation), repr(parameter.default)) for parameter in told}) > 1:
            yield f"an entry for each of {entry}"
    yield from without(found, sections)


def of_class(found, members):
    yield from without(found, SECTIONS)
    if dataclasses.is_dataclass(found) and members is None:
        fields = [field.name for field in dataclasses.fields(found) if not field.name.startswith("_")]
    elif "__init__" in vars(found) and not getattr(found, "_is_protocol", False):
        fields = list(inspect.signature(found).parameters)
    else:
        fields = []
    yield from (f"attribute {field}" for field in fields if not names(found, field))
    for name, member in vars(found).items():
        if name.startswith("_") or (members is not None and name not in members):
            continue
        if isinstance(member, property) and not inspect.getdoc(member):
            yield f"{name}: a sentence"
        elif inspect.isfunction(plain := getattr(member, "__func__", member)):
            yield from (f"{name}: {what}" for what in of_call(plain, sections=()))


def under_heading(html, anchor):
    """Return what stands under a heading of a page, up to the next one that is not below it."""
    heading = re.search(rf'<h(\d) id="{re.escape(anchor)}"', html)
    assert heading is not None, anchor
    return re.split(rf"<h[1-{heading[1]}] ", html[heading.end() :], maxsplit=1)[0]


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("docs") / "examples"
    shutil.copytree(ROOT / "examples", place)
    write_trips(place / "trips.csv")
    for name in ("agents", "vehicles"):
        (place / name).mkdir()
        pl.read_csv(place / f"{name}.csv").write_parquet(place / name / "0.parquet")
    return place


@pytest.fixture(scope="module")
def hooks():
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=name_of)
def test_the_python_on_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, str(page), "exec"), {"__name__": "docs"})


@pytest.mark.parametrize("line", OTHERS)
def test_a_command_on_a_page_runs(line, folder, tmp_path):
    if "--cluster" in line:
        pytest.importorskip("distributed", reason="distributed is not installed: pip install 'palmatch[dask]'")
    if line.startswith(("day ", "reproduce ")):
        # Studies of different pages have folders of one name, and a study goes on only with its own settings.
        folder = shutil.copytree(folder, tmp_path / "examples")
    told = run(*shlex.split(line), folder=folder)
    assert (told.returncode, told.stderr) == (0, ""), told.stderr


def test_a_shorter_form_of_a_command_is_one_that_a_page_has():
    lines = [line for _, line in COMMANDS]
    for table in (INSTEAD, TIMES):
        for entry, words in table.items():
            assert words, entry
            assert any(re.search(entry, line) for line in lines), entry
    for entry in SMALLER:
        assert any(line.startswith(f"palmatch {entry}") for line in lines), entry


# Lines of shell blocks that no test runs, and why.
NOT_RUN = {
    r"python3 -m venv|source |pip install ": "set-up; `make release-check` does it in empty environments",
    r"make ": "set-up and everything that has to hold",
    r"cd ": "the tests run where a reader is then",
    r"python -m benchmarks\.": "records that are not part of the project, or minutes; that the module exists is tested",
    r"dask ": "other machines",
}


@pytest.mark.parametrize("page", [page for page in PAGES if page != OPERATE], ids=name_of)
def test_every_block_of_a_page_is_run_or_there_is_a_reason(page):
    text = re.sub(r" *\\\n\s*", " ", page.read_text())
    kinds = set(re.findall(r"^```(\w*)$(?:.|\n)*?^```$", text, flags=re.MULTILINE))
    assert kinds <= {"bash", "bibtex", "python", "toml"}
    for block in re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL):
        assert tomllib.loads(block)
    run_here = set(commands_of(page))
    for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL):
        for line in filter(None, block.splitlines()):
            assert line.split("  #")[0].strip() in run_here or re.match("|".join(NOT_RUN), line), line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_names_the_wheel_of_this_version(page):
    assert set(re.findall(r"palmatch-([\d.]+)-py3-none-any\.whl", page.read_text())) <= {pm.__version__}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_named_on_a_page_exist(page):
    for module in set(re.findall(r"python -m (benchmarks\.\w+)", page.read_text())):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_on_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http") and not (ROOT / "docs" / "reference" / Path(target).name).match(
            "command-line.md"
        ):
            assert (page.parent / target).exists(), target


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 80


def test_every_word_of_the_command_is_documented():
    text = COMMANDS_PAGE.read_text()
    words = [" ".join(words) for words in command_words()]
    assert words
    for word in words:
        assert f"palmatch {word}" in text, word


def test_the_command_reference_has_every_option(hooks):
    text = hooks.command_reference()
    for words in command_words():
        section = text.split(f" palmatch {' '.join(words)}\n", 1)[1].split("\n## palmatch", 1)[0]
        command = subcommand(words[0])
        for option in (command.commands[words[1]] if len(words) > 1 else command).params:
            for name in option.opts if option.param_type_name == "option" and not option.hidden else ():
                assert f"`{name}`" in section, (words, name)


def test_changelog_and_citation_name_the_version_of_the_package():
    newest = re.search(
        r"^## \[([\d.]+)\] - (\d{4}-\d{2}-\d{2})$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE
    )
    assert newest[1] == pm.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {newest[1]}\ndate-released: {newest[2]}\n" in citation


def test_every_method_is_documented():
    text = COMMANDS_PAGE.read_text()
    for method in pm.METHODS:
        assert f"`{method}`" in text, method


def test_every_public_name_is_in_the_reference():
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    for name in pm.__all__:
        assert f"::: palmatch.{name}\n" in text, name


@pytest.mark.parametrize(("name", "members"), REFERENCE, ids=[name for name, _ in REFERENCE])
def test_what_the_reference_shows_says_what_it_takes_and_returns_and_has_an_example_and_references(name, members):
    assert not list(lacks(pydoc.locate(name), members)), name


def test_a_docstring_that_lacks_something_is_found():
    def half_said(given: int, forgotten: int) -> int:
        """Return a number.

        Parameters
        ----------
        given:
            A number.
        """
        return given + forgotten

    class Nothing:
        """A class.

        References
        ----------
        """

    def two_at_once(first: int, second: str = "") -> None:
        """Take two.

        Parameters
        ----------
        first, second:
            A number and a text.

        Examples
        --------
        >>> two_at_once(1, "a")

        References
        ----------
        A page.
        """

    assert list(lacks(half_said, None)) == ["parameter forgotten", "Returns", "Examples", "References"]
    assert list(lacks(Nothing, None)) == list(lacks(Nothing(), None)) == ["Examples", "References"]
    assert list(lacks(ModuleType("empty", "A module."), None)) == ["Examples", "References"]
    assert list(lacks(two_at_once, None)) == ["an entry for each of first, second"]


def test_examples_in_docstrings_hold():
    shown = [pydoc.locate(name) for name, _ in REFERENCE]
    homes = {found.__name__ if isinstance(found, ModuleType) else found.__module__ for found in shown}
    tried = 0
    for home in sorted(homes):
        result = doctest.testmod(importlib.import_module(home))
        assert result.failed == 0, home
        tried += result.attempted
    assert tried > 100


def test_the_architecture_page_lists_the_packages_there_are():
    page = (ROOT / "docs" / "architecture.md").read_text().split("## Around the package")[0]
    listed = set(re.findall(r"^\| `([\w/.]+)` \|", page, flags=re.MULTILINE))
    source = ROOT / "src" / "palmatch"
    packages = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py"}
    assert listed == packages | modules


def test_every_test_that_the_failure_table_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", "".join(page.read_text() for page in (ROOT / "docs").glob("live*.md"))))
    texts = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    assert len(named) > 20
    assert named <= {name for text in texts for name in re.findall(r"def (test_\w+)", text)}


def test_the_site_builds_without_a_warning(hooks, tmp_path, monkeypatch):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(ROOT)
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    pages = {path.relative_to(tmp_path).with_suffix(".md").as_posix() for path in tmp_path.rglob("*.html")}
    assert pages >= {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    reference = "".join((tmp_path / "reference" / f"{page}.html").read_text() for page in ("api", "device"))
    for name, _ in REFERENCE:
        assert "<summary>References</summary>" in under_heading(reference, name), name
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?://[^"]+)"')
    for path in tmp_path.rglob("*.html"):
        outside = [url for url in fetched.findall(path.read_text()) if "canonical" not in url]
        assert not outside, (path.name, outside)
