"""A pid counts only with its start time and boot; output of ps and /proc is parsed correctly."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from rametd.platform import processes


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        ["sleep", "60"], env={"RAMET_SESSION": "a-test", "RAMET_KEEPER": f"/x/{os.getpid()}", "PATH": "/usr/bin:/bin"}
    )
    yield process
    process.kill()
    process.wait()


def test_a_name_with_parentheses_and_spaces_does_not_confuse_the_parser() -> None:
    line = b"42 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1\n"

    process = processes.parse_proc_stat(line)

    assert (process.pid, process.parent, process.group, process.start, process.zombie) == (42, 1, 7, "987654", False)


def test_ps_on_macos_is_parsed() -> None:
    text = """\
    1     0     1 Ss   Mon Oct  6 09:12:01 2025
  512     1   512 S+   Mon Oct  6 10:00:59 2025
  513   512   512 Z    Mon Oct  6 10:01:00 2025
"""
    first, second, third = processes.parse_ps(text)

    assert (second.pid, second.parent, second.group, second.start) == (512, 1, 512, "Mon Oct 6 10:00:59 2025")
    assert [first.zombie, second.zombie, third.zombie] == [False, False, True]


def test_tags_in_the_environment_that_ps_prints_are_found() -> None:
    text = """\
  512 node server.js PATH=/bin RAMET_SESSION=fix-1 RAMET_KEEPER=/a b/c-2 HOME=/Users/x
  513 node server.js RAMET_SESSION=fix-10 RAMET_KEEPER=/a b/c-2
  514 node server.js XRAMET_SESSION=fix-1 RAMET_KEEPER=/a b/c-2
  515 sleep 1 RAMET_KEEPER=/a b/c-2 RAMET_SESSION=fix-1
"""
    assert processes.parse_ps_environment(text, {"RAMET_SESSION": "fix-1", "RAMET_KEEPER": "/a b/c-2"}) == [512, 515]


def test_a_process_is_found_by_its_tags(sleeper: subprocess.Popen[bytes]) -> None:
    found = processes.tagged({"RAMET_SESSION": "a-test", "RAMET_KEEPER": f"/x/{os.getpid()}"})

    assert [process.pid for process in found] == [sleeper.pid]
    assert processes.tagged({"RAMET_SESSION": "a-test", "RAMET_KEEPER": "/x/8"}) == []
    assert processes.tagged({"RAMET_SESSION": "a-tes"}) == []


def test_a_process_with_another_start_time_is_never_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    process = processes.find(sleeper.pid)
    assert process is not None

    assert not processes.send_signal(sleeper.pid, "1", signal.SIGKILL)
    assert sleeper.poll() is None
    assert processes.send_signal(sleeper.pid, process.start, signal.SIGKILL)
    assert sleeper.wait() == -signal.SIGKILL
    assert not processes.send_signal(sleeper.pid, process.start, signal.SIGKILL)


def test_another_boot_or_start_time_is_another_process() -> None:
    me = processes.find(os.getpid())
    assert me is not None

    assert processes.is_alive(me.pid, me.start, processes.boot_id())
    assert not processes.is_alive(me.pid, me.start, "another boot")
    assert not processes.is_alive(me.pid, me.start + "0", processes.boot_id())


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    zombie = processes.find(process.pid)
    assert zombie is not None

    assert zombie.zombie
    assert not processes.is_alive(zombie.pid, zombie.start, processes.boot_id())
    assert not processes.send_signal(zombie.pid, zombie.start, signal.SIGTERM)
    process.wait()


def test_descendants_are_children_and_theirs_but_not_the_root() -> None:
    def process(pid: int, parent: int, *, zombie: bool = False) -> processes.Process:
        return processes.Process(pid, parent, 1, "1", zombie=zombie)

    among = {p.pid: p for p in (process(1, 0), process(2, 1), process(3, 2, zombie=True), process(4, 3), process(5, 1))}

    assert {p.pid for p in processes.descendants([2], among)} == {4}
    assert {p.pid for p in processes.descendants([1], among)} == {2, 4, 5}
