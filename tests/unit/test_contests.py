"""Names and refusals of contests, the agents on the command line, and the comparison on 80
columns."""

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from ramet.v1 import session_pb2, terminal_pb2, worktree_pb2
from rametctl.commands.new import expand_agents
from rametctl.console.output import Output
from rametctl.errors import ClientError, UsageError
from rametctl.nouns.contests import archive_requests, check_requests, judge_prompt
from rametctl.render.contest import Contender, Contest, Judge, Pair, contest_lines, to_json
from rametd.domain.errors import InvalidInputError
from rametd.domain.states import State
from rametd.services.creation.contests import MOST, check, contenders
from rametd.services.creation.request import NewSession
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_repo, a_session


def new(**fields: Any) -> NewSession:
    return NewSession(Path("/repo"), prompt="make it faster", **fields)


@pytest.fixture
def unit() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        unit.repos.upsert(a_repo())
        yield unit


@pytest.mark.parametrize(
    ("agents", "suffixes"),
    [
        (["claude", "claude"], ["-1", "-2"]),
        (["", "claude"], ["-1", "-2"]),
        (["claude"], ["-claude"]),
        (["claude", "codex"], ["-claude", "-codex"]),
        (["codex", "claude", "codex"], ["-codex-1", "-claude", "-codex-2"]),
    ],
)
def test_names_of_contenders_contain_their_agents(unit: Unit, agents: list[str], suffixes: list[str]) -> None:
    made = contenders(unit, a_repo(), new(name="n", branch="b", fetch=True), agents)
    assert [(each.name, each.branch, each.contest) for each in made] == [(f"n{s}", f"b{s}", "n") for s in suffixes]
    assert [each.fetch for each in made] == [True, *[False] * (len(agents) - 1)]


@pytest.mark.parametrize(
    ("there", "name", "contest", "first"),
    [
        ({}, "", "make-faster", "make-faster-1"),
        ({"name": "make-faster-2"}, "", "make-faster-2", "make-faster-2-1"),
        ({"name": "other", "contest": "make-faster"}, "", "make-faster-2", "make-faster-2-1"),
        ({"contest": "make-faster", "state": State.ARCHIVED}, "", "make-faster-2", "make-faster-2-1"),
        ({"name": "n-1"}, "n", "n", "n-1"),  # refused where it is stored
        ({"contest": "n"}, "n", "n-2", "n-1"),
    ],
)
def test_an_automatic_name_is_varied_until_it_is_free(
    unit: Unit, there: dict[str, Any], name: str, contest: str, first: str
) -> None:
    if there:
        unit.sessions.insert(a_session(**there))
    made = contenders(unit, a_repo(), new(name=name), ["", ""])
    assert (made[0].contest, made[0].name) == (contest, first)


@pytest.mark.parametrize(
    "fields", [{"existing_branch": "main"}, {"in_place": True}, {"adopt": Path("/tree")}, {"owns": ("a/**",)}]
)
def test_what_several_sessions_cannot_share_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="cannot share"):
        check(new(**fields), ["", ""])


def test_a_contest_has_a_size() -> None:
    check(new(), [""] * MOST)
    with pytest.raises(InvalidInputError):
        check(new(), [""] * (MOST + 1))


@pytest.mark.parametrize(
    ("agents", "count", "expected"),
    [
        ((), 1, []),
        (("codex",), 1, []),
        (("codex:1",), 1, []),
        ((), 2, ["", ""]),
        (("claude:2",), 1, ["claude", "claude"]),
        (("claude", "codex:2"), 1, ["claude", "codex", "codex"]),
        (("claude", "codex"), 2, None),
        (("claude:0",), 1, None),
        (("claude:x",), 1, None),
        (("claude:",), 1, None),
        ((":2",), 1, None),
    ],
)
def test_agents_on_the_command_line(agents: tuple[str, ...], count: int, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(UsageError):
            expand_agents(agents, count)
    else:
        assert expand_agents(agents, count) == expected


def contender(name: str, *paths: str, check: str = "", tree: str = "t", **fields: Any) -> Contender:
    diff = worktree_pb2.GetDiffResponse(
        files=[worktree_pb2.FileChange(path=path) for path in paths], additions=len(paths), deletions=2, tree="t"
    )
    command = None
    if check:
        state = terminal_pb2.COMMAND_STATE_EXITED
        command = terminal_pb2.Command(check="make test", state=state, exit_status=check, tree=tree)
    session = session_pb2.Session(
        name=name, agent="claude", base_ref="main", base_commit="0123456789", cost_usd=0.5, turn_seconds=75,
        state=session_pb2.SESSION_STATE_IDLE, **fields,
    )  # fmt: skip
    return Contender(session, diff, command)


def test_the_comparison_fits_on_80_columns() -> None:
    judge = session_pb2.Session(name="fast-judge", agent="codex", create_time=Timestamp(seconds=5))
    contest = Contest(
        "make-the-parser-faster",
        "make test",
        (
            contender("make-the-parser-faster-1", "a.py", "b.py", check="code 0"),
            contender("make-the-parser-faster-2", "a.py", "c.py", check="code 1"),
            contender("make-the-parser-faster-3", "a.py", check="code 0", tree="older"),
        ),
        Judge(judge, "Keep the first.\nIt has tests.", outdated=True),
        (Pair("one", "two", contender("x", "b.py", "c.py").diff or worktree_pb2.GetDiffResponse()),),
    )
    output = Output(io.StringIO(), io.StringIO(), {})
    output.terminal = True  # as wide as one whose size is unknown: 80 columns
    shown = [each.text.rstrip() for each in contest_lines(output, contest)]
    assert shown == [
        "make-the-parser-faster  3 contenders from main (0123456)",
        "check: make test",
        "NAME                      STATE   COST    TIME  CHANGES        CHECK",
        "make-the-parser-faster-1  idle   $0.50  1m 15s  2 files +2 −2  passed",
        "make-the-parser-faster-2  idle   $0.50  1m 15s  2 files +2 −2  failed (code 1)",
        "make-the-parser-faster-3  idle   $0.50  1m 15s  1 file +1 −2   passed, outdated",
        "all change  a.py",
        "only make-the-parser-faster-1  b.py",
        "only make-the-parser-faster-2  c.py",
        "one → two  differ in 2 files +2 −2",
        "advice of fast-judge (codex, given before later work):",
        "  Keep the first.",
        "  It has tests.",
    ]
    assert all(len(text) <= 80 for text in shown)


def test_json_names_what_all_have_changed_and_what_is_outdated() -> None:
    contest = Contest(
        "c", "", (contender("a", "x", "y", check="code 0", tree="older"), contender("b", "y"), contender("c"))
    )
    shown = to_json(contest)
    assert (shown["files_in_common"], contest.unshared()) == (["y"], {"a": ["x"], "b": [], "c": []})
    assert [each["check_result"] and each["check_result"]["outdated"] for each in shown["contenders"]] == [
        True,
        None,
        None,
    ]


def of_contest(name: str, state: str) -> session_pb2.Session:
    number = session_pb2.SessionState.Value(f"SESSION_STATE_{state.upper()}")
    return session_pb2.Session(id=name, name=name, contest="c", state=number)


@pytest.mark.parametrize(
    ("states", "stop", "archived"),
    [
        (["idle", "idle", "idle"], False, ["b", "c", "judge"]),
        (["idle", "archived", "failed"], False, ["c", "judge"]),
        (["idle", "working", "idle"], False, None),
        (["idle", "waiting", "idle"], False, None),
        (["working", "idle", "idle"], False, None),
        (["idle", "working", "idle"], True, ["b", "c", "judge"]),
        (["archived", "idle", "idle"], True, None),
    ],
)
def test_a_pick_archives_the_others_or_is_refused(states: list[str], stop: bool, archived: list[str] | None) -> None:
    contenders = [of_contest(name, state) for name, state in zip("abc", states, strict=True)]
    judges = [of_contest("judge", "working")]
    if archived is None:
        with pytest.raises(ClientError):
            archive_requests(contenders[0], contenders, judges, stop=stop)
        return
    found = archive_requests(contenders[0], contenders, judges, stop=stop)
    assert [each.session for each in found] == archived
    assert [each.force for each in found] == [stop or each == "judge" for each in archived]


def test_a_check_runs_in_contenders_that_are_not_working() -> None:
    states = ["idle", "working", "failed", "archived", "queued", "paused"]
    found = check_requests([of_contest(state, state) for state in states], "make test")
    assert [(each.session, each.check) for each in found] == [
        (each, "make test") for each in ("idle", "failed", "paused")
    ]


def test_a_judges_prompt_has_task_patches_and_checks() -> None:
    contest = Contest("c", "make test", (contender("a", "x", check="code 1"), contender("b", "y")))
    patches = [(contest.contenders[0], b"+one", False), (contest.contenders[1], b"+two", True)]
    prompt = judge_prompt(contest, "the task", patches)
    for part in ("2 solutions", "the task", "failed (code 1)", "+one", "cut off", "+two"):
        assert part in prompt
