"""Programs that the zygote forks for tests."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.zygote import Forked


def test_all_waiting_threads_get_the_exit_status(tmp_path: Path) -> None:
    """A test kills a daemon in one thread while another waits for its end."""
    with Path(os.devnull).open("r+b") as nothing:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        program = Forked("rametd", ["--nothing"], environ=environ, cwd=tmp_path, streams=[nothing] * 3)
        with ThreadPoolExecutor(8) as threads:
            waiting = [threads.submit(program.wait, 30) for _ in range(8)]
            assert {each.result() for each in waiting} == {2}
            assert program.poll() == 2
