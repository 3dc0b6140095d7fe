"""What the documentation says is true: its Python and commands run, its links lead somewhere, lists are complete."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import operator
import re
import shlex
import shutil
from pathlib import Path
from types import ModuleType

import pytest

import palmatch as pm
from palmatch.cli.app import command_words, subcommand
from running import run

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMANDS_PAGE = ROOT / "docs" / "commands.md"

# What makes a command short enough for a test, in place of what the page has.
SMALLER = {
    "audit": "--games 40",
    "compare": "--runs 1",
    "day": "--start 05:00 --end 05:01",
    "demo": "--hour 5 --runs 1",
    "frontier": "--runs 1 --epsilons 1",
    "limit": "--crowds 20 --edge 2000 --epsilon 1",
}
# Commands that need what a test has not: records that are not part of the project, other machines, minutes, a browser.
# Their subcommands and options are checked instead.
_ELSEWHERE = re.compile(
    r"FILE|HOST|DIR|_tripdata|trips\.csv|alice\.ledger|--cluster"
    r"|^palmatch (bench|reproduce|explore|live|data)\b"
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_of(page: Path) -> list[str]:
    """Return the commands of a page, from fenced and indented blocks, with continued lines joined."""
    text = re.sub(r" *\\\n\s*", " ", page.read_text())
    fenced = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL))
    indented = "\n".join(re.findall(r"^ {4}(?=(?:time )?palmatch )(.*)$", text, flags=re.MULTILINE))
    lines = [
        line.removeprefix("time ").split("   #")[0].split("  #")[0].strip()
        for line in (fenced + "\n" + indented).splitlines()
    ]
    return [line for line in lines if line.startswith("palmatch ")]


COMMANDS = [(page, line) for page in PAGES for line in commands_of(page)]


def shortened(line: str) -> str:
    """Return a command with the options that make it short; commands that differ in these alone become one."""
    words = shlex.split(line)[1:]
    options = dict(zip(*[iter(shlex.split(SMALLER.get(words[0], "")))] * 2, strict=True))
    kept = [word for word, before in zip(words, ["", *words], strict=False) if not {word, before} & set(options)]
    return shlex.join([*kept, *(word for option in options.items() for word in option)])


HERE = list(dict.fromkeys(shortened(line) for _, line in COMMANDS if not _ELSEWHERE.search(line)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("docs") / "examples"
    shutil.copytree(ROOT / "examples", place)
    return place


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=name_of)
def test_the_python_on_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, str(page), "exec"), {"__name__": "docs"})


@pytest.mark.parametrize("line", HERE)
def test_a_command_on_a_page_runs(line: str, folder: Path) -> None:
    told = run(*shlex.split(line), folder=folder)
    assert (told.returncode, told.stderr) == (0, ""), told.stderr


@pytest.mark.parametrize("line", list(dict.fromkeys(line for _, line in COMMANDS if _ELSEWHERE.search(line))))
def test_a_command_that_needs_more_has_options_that_exist(line: str) -> None:
    words = shlex.split(line)[1:]
    command = subcommand(words[0])
    command = getattr(command, "commands", {}).get(words[1], command) if len(words) > 1 else command
    known = {name for option in command.params for name in [*option.opts, *option.secondary_opts]}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_modules_named_on_a_page_exist(page: Path) -> None:
    for module in set(re.findall(r"python -m (benchmarks\.\w+)", page.read_text())):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_on_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith("http") and not (ROOT / "docs" / "reference" / Path(target).name).match(
            "command-line.md"
        ):
            assert (page.parent / target).exists(), target


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_every_word_of_the_command_is_documented() -> None:
    text = COMMANDS_PAGE.read_text()
    words = [" ".join(words) for words in command_words()]
    assert words
    for word in words:
        assert f"palmatch {word}" in text, word


def test_the_command_reference_has_every_option(hooks: ModuleType) -> None:
    text = hooks.command_reference()
    for words in command_words():
        section = text.split(f" palmatch {' '.join(words)}\n", 1)[1].split("\n## palmatch", 1)[0]
        command = subcommand(words[0])
        for option in (command.commands[words[1]] if len(words) > 1 else command).params:
            for name in option.opts if option.param_type_name == "option" and not option.hidden else ():
                assert f"`{name}`" in section, (words, name)


def test_changelog_and_citation_name_the_version_of_the_package() -> None:
    newest = re.search(
        r"^## \[([\d.]+)\] - (\d{4}-\d{2}-\d{2})$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE
    )
    assert newest is not None
    assert newest[1] == pm.__version__
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {newest[1]}\ndate-released: {newest[2]}\n" in citation


def test_every_method_is_documented() -> None:
    text = COMMANDS_PAGE.read_text()
    for method in pm.METHODS:
        assert f"`{method}`" in text, method


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text()
    for name in pm.__all__:
        assert f"::: palmatch.{name}\n" in text, name


@pytest.mark.parametrize("name", pm.__all__)
def test_a_public_function_says_what_it_takes_and_returns_and_shows_an_example(name: str) -> None:
    found = getattr(pm, name)
    text = inspect.getdoc(found) or ""
    assert text
    if inspect.isroutine(found):
        for section in ("Parameters\n---", "Returns\n---", "Examples\n---"):
            assert section in text, section
        for parameter in inspect.signature(found).parameters:
            assert re.search(rf"^(?:\w+, )*{parameter}(?:, \w+)*:?$", text, flags=re.MULTILINE), parameter


@pytest.mark.parametrize("name", [name for name in pm.__all__ if inspect.isclass(getattr(pm, name))])
def test_a_public_class_shows_an_example(name: str) -> None:
    assert "Examples\n---" in (inspect.getdoc(getattr(pm, name)) or "")


@pytest.mark.parametrize(
    "call",
    [
        "limit.__call__",
        *(f"{name}.problem" for name in ("mobility", "papers", "scores", "table")),
        "pairs.rides",
        "pairs.table",
    ],
)
def test_a_domain_says_what_it_takes_and_returns_and_shows_an_example(call: str) -> None:
    text = inspect.getdoc(operator.attrgetter(call)(pm)) or ""
    for section in ("Parameters\n---", "Returns\n---", "Examples\n---"):
        assert section in text, section


def test_examples_in_docstrings_hold() -> None:
    homes = {getattr(getattr(pm, name), "__module__", None) or getattr(pm, name).__name__ for name in pm.__all__}
    tried = 0
    for home in sorted(homes):
        result = doctest.testmod(importlib.import_module(home))
        assert result.failed == 0, home
        tried += result.attempted
    assert tried > 20


def test_the_architecture_page_lists_the_packages_there_are() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text().split("## Around the package")[0]
    listed = set(re.findall(r"^\| `([\w/.]+)` \|", page, flags=re.MULTILINE))
    source = ROOT / "src" / "palmatch"
    packages = {f"{path.parent.name}/" for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py"}
    assert listed == packages | modules


def test_the_site_builds_without_a_warning(hooks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(ROOT)
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    pages = {path.relative_to(tmp_path).with_suffix(".md").as_posix() for path in tmp_path.rglob("*.html")}
    assert pages >= {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    fetched = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(https?://[^"]+)"')
    for path in tmp_path.rglob("*.html"):
        outside = [url for url in fetched.findall(path.read_text()) if "canonical" not in url]
        assert not outside, (path.name, outside)
