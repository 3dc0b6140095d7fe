"""A device has Python and nothing else: no numerical library, and no other part of palmatch."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import palmatch
import palmatch.device

MODULES = [f"palmatch.device.{module.name}" for module in pkgutil.iter_modules(palmatch.device.__path__)]


def alone(code):
    """Run code without site-packages, so that there is nothing to import but the standard library and palmatch."""
    source = Path(palmatch.__file__).parents[1]
    code = f"import sys; sys.path.insert(0, {str(source)!r})\n{code}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_device_imports_with_the_standard_library_alone():
    assert MODULES
    alone("\n".join(f"import {module}" for module in MODULES))


def test_a_device_imports_no_other_part_of_palmatch():
    imports = "\n".join(f"import {module}" for module in MODULES)
    found = alone(f"{imports}\nprint(*sorted(name for name in sys.modules if name.startswith('palmatch.')))").split()
    assert [name for name in found if not name.startswith("palmatch.device")] == ["palmatch.errors"]
