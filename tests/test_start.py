"""How palmatch starts: at once, with every public name there when it is used."""

import subprocess
import sys

import pytest

import palmatch as pm

HEAVY = ("numpy", "numba", "scipy", "polars", "pyproj", "matplotlib", "dask")


def in_a_new_process(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("name", pm.__all__)
def test_every_public_name_is_there(name):
    assert getattr(pm, name) is not None
    assert name in dir(pm)


def test_a_name_that_is_not_there_is_told_as_python_does():
    with pytest.raises(AttributeError, match="no attribute 'mach'"):
        _ = pm.mach


def test_importing_palmatch_imports_no_numerical_library():
    found = in_a_new_process(f"import sys, palmatch; print([name for name in {HEAVY} if name in sys.modules])")
    assert found == "[]"


def test_the_version_is_told_without_importing_any_subcommand():
    told = in_a_new_process(
        "import sys; sys.argv = ['palmatch', '--version']\n"
        "from palmatch.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert told.splitlines() == [f"palmatch {pm.__version__}", "[]"]


def test_a_command_that_copies_files_imports_nothing_of_the_engine(tmp_path):
    found = in_a_new_process(
        f"import sys; sys.argv = ['palmatch', 'examples', '--quiet', '--out', {str(tmp_path / 'examples')!r}]\n"
        "from palmatch.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print(len([name for name in sys.modules if name.startswith('palmatch')]) <= 20, "
        f"[name for name in {HEAVY} if name in sys.modules])"
    )
    assert found == "True []"
    assert (tmp_path / "examples" / "agents.csv").exists()


def test_python_dash_m_runs_the_command():
    ran = subprocess.run([sys.executable, "-m", "palmatch", "--version"], check=True, capture_output=True, text=True)
    assert ran.stdout == f"palmatch {pm.__version__}\n"


def test_a_misspelt_subcommand_is_answered_with_the_nearest():
    ran = subprocess.run([sys.executable, "-m", "palmatch", "mach"], check=False, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "match" in ran.stderr
