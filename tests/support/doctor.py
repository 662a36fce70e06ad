"""Run doctor and gc in tests, and follow doctor's advice as a person would."""

import asyncio
import re
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

from ramet.v1 import worktree_pb2

from tests.support.daemon import Client, Sandbox


async def findings(
    client: Client, *, fix: bool = False, repo: str = "", ports: bool = False
) -> list[worktree_pb2.Finding]:
    """Return all findings; those about foreign listeners on ports only with ``ports``, as other
    tests may listen there."""
    answer = await client.worktrees.Diagnose(worktree_pb2.DiagnoseRequest(fix=fix, repo=repo))
    return [found for found in answer.findings if ports or found.code != "port-foreign"]


async def diagnose(client: Client, **how: Any) -> dict[str, worktree_pb2.Finding]:
    """Return the findings by subject."""
    return {found.subject: found for found in await findings(client, **how)}


def codes(found: dict[str, worktree_pb2.Finding]) -> dict[str, tuple[str, str]]:
    return {subject: (each.code, each.severity) for subject, each in found.items()}


async def garbage(client: Client, *, dry_run: bool = True) -> dict[str, worktree_pb2.Garbage]:
    answer = await client.worktrees.CollectGarbage(worktree_pb2.CollectGarbageRequest(dry_run=dry_run))
    return {item.name: item for item in answer.items}


def record_former_ids(sandbox: Sandbox, *ids: str) -> None:
    """Record ids of former sessions in the database: things with unknown ids would count as another
    Ramet's."""
    with closing(sqlite3.connect(sandbox.root / "state" / "ramet.db", timeout=10)) as database, database:
        database.executemany("INSERT OR IGNORE INTO given_ids (id) VALUES (?)", [(each,) for each in ids])


async def follow(sandbox: Sandbox, repository: Path, advice: str, what: str) -> None:
    """Run a line of an advice, as a person who pastes it into a shell."""
    (command,) = [line.partition(": ")[2] for line in advice.splitlines() if line.startswith(what)]
    await run(sandbox, repository, command)


def commands_in(words: str) -> list[str]:
    """Return the commands that a hint has between backticks."""
    return re.findall("`([^`]+)`", words)


async def run(sandbox: Sandbox, repository: Path, command: str) -> str:
    """Run a command that a person pastes into a shell; return its output. It must succeed."""
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-c", command],
        cwd=repository,
        env=sandbox.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout
