"""The end of the daemon while a thread works, and a Ctrl-C of the client that Python would drop."""

import subprocess
import sys

BUSY = """
import threading
from concurrent.futures import ThreadPoolExecutor
import structlog
structlog.configure(processors=[structlog.processors.JSONRenderer()], logger_factory=structlog.PrintLoggerFactory())
from rametd import shutdown

def reads_a_network_drive(gate):
    gate.wait()

threads = ThreadPoolExecutor(2, thread_name_prefix="git")
gate = threading.Event()
threads.submit(print, "idle", flush=True).result()
threads.submit(reads_a_network_drive, gate)
shutdown.limit(0.2, 0.4)
"""
FINALIZER = """
import os, signal, time
from rametctl import __main__

class Call:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

def run(app, words):
    Call()
    time.sleep(5)
    return 0

__main__.application, __main__.run = lambda words: None, run
__main__.main([])
"""


def test_a_shutdown_names_the_threads_that_it_waits_for_and_ends() -> None:
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "git_0: __main__.reads_a_network_drive" in done.stdout
    assert "the daemon ends without these threads" in done.stdout


def test_ctrl_c_in_a_finalizer_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", FINALIZER], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "")
