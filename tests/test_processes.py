import os
import signal
import subprocess
import sys

import pytest

STARTED = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from palmatch.threads import end_with_parent

pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=end_with_parent)
print(pool.submit(os.getpid).result(), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_in_the_background_ends_with_the_one_that_started_it(end):
    with subprocess.Popen([sys.executable, "-c", STARTED], stdout=subprocess.PIPE, text=True) as parent:
        assert int(parent.stdout.readline()) != parent.pid
        parent.send_signal(end)
        # Both write to one pipe, which ends with the last of them; the test's own limit of time ends a wait in vain.
        assert parent.stdout.read() == ""
