"""Commands at the lowest priority."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from rametd.git.process import GitProcess
from rametd.platform.groups import LOWEST

from tests.support import repositories

SHOW = "import os; print(os.getpid(), os.nice(0))"


def test_the_command_becomes_the_process_that_was_started_and_gives_way() -> None:
    command = [*LOWEST, sys.executable, "-c", SHOW]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        words, _ = process.communicate(timeout=20)
    assert words.split() == [str(process.pid), "19"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux groups the processes of a session")
def test_it_gives_way_on_the_disk_and_as_a_session_too() -> None:
    script = "import pathlib, psutil; print(int(psutil.Process().ionice().ioclass)); "
    script += "group = pathlib.Path('/proc/self/autogroup'); print(group.read_text() if group.exists() else 'nice 19')"
    done = subprocess.run(
        [*LOWEST, sys.executable, "-c", script], capture_output=True, text=True, check=True, start_new_session=True
    )
    io_class, group = done.stdout.split("\n", 1)
    assert int(io_class) == psutil.IOPRIO_CLASS_IDLE
    assert group.strip().endswith("nice 19")


def test_arguments_and_the_exit_status_are_the_commands_own() -> None:
    done = subprocess.run(
        [*LOWEST, "sh", "-c", 'printf "%s|" "$@"; exit 7', "sh", "a b", "", "$c"],
        capture_output=True,
        check=False,
        start_new_session=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, b"a b||$c|", b"")


def test_it_runs_where_none_of_the_tools_is_there(tmp_path: Path) -> None:
    for tool in ("nice", "true"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    done = subprocess.run(
        ["/bin/sh", *LOWEST[1:], "true"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        check=False,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")


async def test_git_in_the_background_writes_with_one_worker_and_gives_way(tmp_path: Path) -> None:
    environment = repositories.git_environment(tmp_path / "home")
    sample = repositories.plain(tmp_path / "repo", environment)
    sample.git("config", "checkout.workers", "8")
    git = GitProcess(environment)
    alias = ("-c", "alias.manners=!nice; git config checkout.workers", "manners")
    assert (await git.in_background().read(sample.path, *alias)).split() == [b"19", b"1"]
    assert (await git.read(sample.path, *alias)).split() == [str(os.nice(0)).encode(), b"8"]


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this system has no scheduler groups of sessions")
def test_a_group_that_linux_refuses_to_change_so_soon_is_changed_later() -> None:
    script = """
        import os, pathlib, time
        from rametd.keeper.child import GROUP_PAUSE, lower_group
        refused = 0
        for nice in range(1, 5):
            while lower_group(os.getpid(), nice):
                refused += 1
                time.sleep(GROUP_PAUSE / 4)
        lower_group(os.getpid(), 2)
        print(refused > 0, pathlib.Path("/proc/self/autogroup").read_text())
    """
    plain = ["setpriv", "--inh-caps", "-sys_admin", "--bounding-set", "-sys_admin"] if os.getuid() == 0 else []
    done = subprocess.run(
        [*plain, sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    refused, group = done.stdout.split(" ", 1)
    assert refused == "True"
    assert group.strip().endswith("nice 4")
