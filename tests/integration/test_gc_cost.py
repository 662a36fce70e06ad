"""The cost of gc in a repository with many worktrees."""

import time
from pathlib import Path

import pytest
from rametd.domain.states import State
from rametd.git import REASON, registrations
from rametd.services.upkeep.collector import Collector
from rametd.store import Unit

from tests.support.core import bare_core
from tests.support.repositories import Sample
from tests.support.rows import a_repo, a_session


async def test_gc_reads_all_entries_as_often_for_many_sessions_as_for_two(
    sample: Sample, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    entries = registrations._entries

    def counted(*arguments: object) -> object:
        nonlocal reads
        reads += 1
        return entries(*arguments)  # type: ignore[arg-type]

    def add(unit: Unit, number: int) -> None:
        tree, branch = tmp_path / "trees" / f"{number:08x}", f"ramet/{number}"
        sample.git("worktree", "add", "-q", "--lock", "--reason", REASON, "-b", branch, str(tree))
        head = sample.git("rev-parse", "HEAD")
        fields = {"branch": branch, "base_commit": head, "worktree": tree, "state": State.IDLE, "turns": 1}
        unit.sessions.insert(a_session(tree.name, **fields))

    monkeypatch.setattr(registrations, "_entries", counted)
    costs: list[int] = []
    async with bare_core(tmp_path, environment, time.time) as core:
        repo = a_repo("repo", root=sample.path, common_dir=sample.path / ".git")
        await core.store.write(lambda unit: unit.repos.upsert(repo))
        for numbers in (range(2), range(2, 9)):
            for number in numbers:
                await core.store.write(lambda unit, number=number: add(unit, number))  # type: ignore[misc]
            reads = 0
            found = await Collector(core, None).collect(None, dry_run=True, principal="owner")  # type: ignore[arg-type]
            assert [item.verdict for item in found] == ["stale"] * (numbers[-1] + 1), found
            costs.append(reads)
    assert costs[0] == costs[1] > 0
