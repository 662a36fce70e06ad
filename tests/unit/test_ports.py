"""Blocks of ports: allocation, and their listeners."""

import os
import socket
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.config import Config
from rametd.config.model import Ports
from rametd.domain.errors import CapReachedError
from rametd.platform.listeners import Listener, listeners, parse_lsof, parse_proc_net_tcp
from rametd.services import ports
from rametd.store import Reader


@dataclass
class Sessions:
    blocks: list[tuple[int, int]]

    def port_blocks(self) -> list[tuple[int, int]]:
        return sorted(self.blocks)


def reader(blocks: list[tuple[int, int]]) -> Reader:
    return cast("Reader", SimpleNamespace(sessions=Sessions(blocks)))


def config(base: int, count: int) -> Config:
    return replace(Config(), ports=Ports(base=base, per_session=count))


@pytest.fixture
def all_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: True)


REQUESTS = st.lists(st.tuples(st.booleans(), st.integers(1, 30), st.integers(0, 200)), max_size=60)


@given(REQUESTS)
def test_blocks_of_ports_never_overlap(requests: list[tuple[bool, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "is_free", lambda port: port % 7 != 3)
        blocks: list[tuple[int, int]] = []
        for removes, count, which in requests:
            if removes and blocks:
                blocks.pop(which % len(blocks))
                continue
            size = count % 3 + 1
            made = ports.allocate(reader(blocks), config(20000, size))
            assert made[1] == size
            assert all(port % 7 != 3 for port in range(made[0], sum(made)))
            blocks.append(made)
            numbers = [port for base, length in blocks for port in range(base, base + length)]
            assert len(numbers) == len(set(numbers))


@pytest.mark.usefixtures("all_free")
def test_a_session_gets_its_former_ports_again_unless_another_has_them() -> None:
    assert ports.allocate(reader([(20000, 10)]), config(20000, 10), (20010, 5)) == (20010, 5)
    assert ports.allocate(reader([(20000, 10)]), config(20000, 10), (20005, 10)) == (20010, 10)


@pytest.mark.usefixtures("all_free")
def test_the_last_port_is_the_last_one_there_is() -> None:
    assert ports.allocate(reader([]), config(65000, 500)) == (65000, 500)
    with pytest.raises(CapReachedError):
        ports.allocate(reader([(65000, 500)]), config(65000, 100))
    assert ports.allocate(reader([]), config(65000, 0)) == (0, 0)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 - what others listen on
def test_a_port_in_use_is_not_free_and_its_listener_is_named(address: str) -> None:
    with socket.create_server((address, 0)) as server:
        port: int = server.getsockname()[1]
        assert not ports.is_free(port)
        assert listeners({port})[port].pid == os.getpid()
    assert listeners({port}) == {}


def test_names_of_commands_are_names_of_ports_in_their_order() -> None:
    session: Any = SimpleNamespace(port_base=20000, port_count=2)
    assert ports.variables(session, ["web", "db-admin", "late"]) == {
        "RAMET_PORT_0": "20000", "RAMET_PORT_1": "20001", "RAMET_PORT_WEB": "20000", "RAMET_PORT_DB_ADMIN": "20001",
    }  # fmt: skip
    assert ports.port_of(session, "late", ["web", "db-admin", "late"]) is None


def test_tables_of_the_kernel_are_read() -> None:
    table = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000
   1: 0100007F:4E21 0100007F:4E20 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0000000000000000
"""
    assert parse_proc_net_tcp(table) == {20000: "4711"}


def test_the_words_of_lsof_are_read() -> None:
    text = "p501\ncnode\nf23\nn*:20000\nf24\nn[::1]:20001\np777\ncpython3.11\nf3\nn127.0.0.1:20002\n"
    node = Listener(501, "node")
    assert parse_lsof(text) == {20000: node, 20001: node, 20002: Listener(777, "python3.11")}
