"""Guarantees of the tables: compare-and-set, first answers, orders, refusals."""

import gc
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
from rametd.domain.errors import (
    BranchTakenError,
    ChangedError,
    InvalidInputError,
    NameTakenError,
    NotFoundError,
    RepoNotFoundError,
    RequestClosedError,
    RequestIdReusedError,
    RequestNotFoundError,
    SessionNotFoundError,
    WrongStateError,
)
from rametd.domain.models import (
    Agent,
    AgentState,
    Hold,
    LastWords,
    Mode,
    NewEvent,
    OutgoingKind,
    PromptState,
    RequestState,
    Session,
    Tokens,
)
from rametd.domain.operations import Caller, Kind, Operation
from rametd.domain.states import State
from rametd.domain.trust import Trusted, digest_of
from rametd.services.archiving.belongings import belongings, restore_belongings
from rametd.store import Grouping, Unit, dump_repo, dump_session, load_repo, load_session
from rametd.store.agents import AgentColumns
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations
from rametd.store.sessions import SessionColumns

from tests.support.rows import (
    a_control_request,
    a_ledger_entry,
    a_repo,
    a_request,
    a_rule,
    a_session,
    a_trash_entry,
    an_agent,
)

NOW = 1000.0


@pytest.fixture
def unit() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        db.execute("PRAGMA foreign_keys = ON")
        unit = Unit(Scope(db, NOW))
        unit.repos.upsert(a_repo())
        yield unit


@pytest.fixture
def session(unit: Unit) -> Unit:
    """Return the unit, with session ``one`` and its agent of generation 1."""
    unit.sessions.insert(a_session())
    unit.agents.insert(an_agent())
    return unit


class TestSessions:
    def test_a_row_is_read_as_it_was_written(self, unit: Unit) -> None:
        full = a_session(
            name="ünï/code -- x",
            mode=Mode.PLAN,
            hold=Hold.BUDGET,
            tokens=Tokens(1, 2, 3, 4),
            budget_usd=2.5,
            owns=("src/**", "a b"),
            after=("two",),
            interrupted=True,
        )
        unit.sessions.insert(full)
        assert unit.sessions.get("one") == full
        assert load_session(dump_session(full)) == full
        assert load_repo(dump_repo(a_repo())) == a_repo()

    def test_a_record_that_is_none_is_refused(self) -> None:
        for text in ("", "[]", "3", "{}", '{"id": "one"}'):
            with pytest.raises(InvalidInputError):
                load_session(text)

    def test_a_path_that_is_not_utf8_is_refused(self, unit: Unit) -> None:
        with pytest.raises(InvalidInputError, match="UTF-8"):
            unit.sessions.insert(a_session(worktree=Path("/trees/\udcff")))

    def test_an_update_bumps_the_version_and_checks_it(self, session: Unit) -> None:
        updated = session.sessions.update("one", expect_version=0, tokens=Tokens(5), model="opus")
        assert (updated.version, updated.update_time, updated.tokens, updated.model) == (1, NOW, Tokens(5), "opus")
        with pytest.raises(ChangedError):
            session.sessions.update("one", expect_version=0, model="haiku")
        with pytest.raises(SessionNotFoundError):
            session.sessions.update("nobody", model="haiku")

    def test_a_transition_follows_the_table(self, session: Unit) -> None:
        with pytest.raises(WrongStateError):
            session.sessions.transition("one", State.ARCHIVED)
        started = session.sessions.transition("one", State.STARTING, expect={State.QUEUED}, worktree_ready=True)
        assert (started.state, started.worktree_ready) == (State.STARTING, True)
        with pytest.raises(ChangedError):
            session.sessions.transition("one", State.STARTING, expect={State.QUEUED})

    def test_the_same_state_with_another_reason_is_an_update(self, session: Unit) -> None:
        held = session.sessions.transition("one", State.PAUSED, reason="budget spent", hold=Hold.BUDGET)
        assert (held.state_reason, held.hold) == ("budget spent", Hold.BUDGET)
        held = session.sessions.transition("one", State.PAUSED, reason="by you", hold=Hold.PERSON)
        assert (held.state_reason, held.hold) == ("by you", Hold.PERSON)
        idle = session.sessions.transition("one", State.IDLE)
        assert (idle.state_reason, idle.hold) == ("", Hold.NONE)

    def test_names_and_branches_are_taken_once_in_a_repository(self, session: Unit) -> None:
        with pytest.raises(NameTakenError):
            session.sessions.insert(a_session("two", name="one"))
        with pytest.raises(BranchTakenError):
            session.sessions.insert(a_session("two", branch="ramet/one"))
        session.repos.upsert(a_repo("other"))
        session.sessions.insert(a_session("two", repo_id="other", name="one", branch="ramet/one"))
        assert [each.id for each in session.sessions.by_name("one")] == ["one", "two"]
        assert [each.id for each in session.sessions.by_name("one", "other")] == ["two"]

    def test_an_archived_session_frees_its_branch_and_cannot_retake_it(self, session: Unit) -> None:
        session.sessions.transition("one", State.IDLE)
        session.sessions.transition("one", State.ARCHIVED)
        session.sessions.insert(a_session("two", branch="ramet/one"))
        with pytest.raises(BranchTakenError):
            session.sessions.transition("one", State.IDLE)

    def test_sessions_without_a_branch_do_not_collide(self, unit: Unit) -> None:
        unit.sessions.insert(a_session("one", branch=""))
        unit.sessions.insert(a_session("two", branch=""))

    def test_prefixes_are_literal(self, unit: Unit) -> None:
        for each in ("ab-1", "ab-2", "b"):
            unit.sessions.insert(a_session(each))
        assert [each.id for each in unit.sessions.find_by_prefix("ab")] == ["ab-1", "ab-2"]
        assert unit.sessions.find_by_prefix("%") == unit.sessions.find_by_prefix("a*") == []

    def test_pages_follow_on_each_other_without_the_archived(self, unit: Unit) -> None:
        for number in range(7):
            unit.sessions.insert(a_session(f"s{number}", create_time=float(number // 2)))
        unit.sessions.insert(a_session("gone", state=State.ARCHIVED))
        pages, after = [], None
        while page := unit.sessions.list(limit=3, after=after):
            pages.append([each.id for each in page])
            after = (page[-1].create_time, page[-1].id)
        assert pages == [["s0", "s1", "s2"], ["s3", "s4", "s5"], ["s6"]]
        assert [each.id for each in unit.sessions.list(states={State.ARCHIVED})] == ["gone"]
        assert len(unit.sessions.list(include_archived=True)) == 8
        assert unit.sessions.list(repo_id="other") == []
        counts = unit.sessions.counts()
        assert (counts[State.QUEUED], counts[State.ARCHIVED], counts[State.LOST]) == (7, 1, 0)

    def test_the_queue_goes_by_priority_then_by_turns_between_repositories(self, unit: Unit) -> None:
        unit.repos.upsert(a_repo("other"))
        for number in range(3):
            unit.sessions.insert(a_session(f"a{number}", create_time=float(number)))
            unit.sessions.insert(a_session(f"b{number}", repo_id="other", create_time=10.0 + number))
        unit.sessions.insert(a_session("urgent", priority=1, create_time=99.0))
        assert [each.id for each in unit.sessions.queued()] == ["urgent", "a0", "b0", "a1", "b1", "a2", "b2"]
        unit.sessions.transition("a0", State.STARTING)
        assert [each.id for each in unit.sessions.queued(4)] == ["urgent", "b0", "a1", "b1"]

    def test_images_stay_with_a_prompt_that_gets_another_id_and_go_with_it(self, session: Unit) -> None:
        session.prompts.add("p", "one", "look", "owner", images=[b"first", b"second"])
        session.prompts.mark_sent("p", 1)
        session.prompts.take_back("p")
        (prompt,) = session.prompts.open("one")
        assert (prompt.id != "p", prompt.images) == (True, 2)
        assert session.prompts.images(prompt.id) == [b"first", b"second"]
        session.sessions.delete("one")
        assert session.prompts.images(prompt.id) == []

    def test_the_trash_gives_back_rules_and_unreceived_prompts_with_their_images(self, session: Unit) -> None:
        session.prompts.add("a", "one", "look", "owner", images=[b"\xff\xd8\xff first", b"second"])
        session.prompts.add("b", "one", "go on", "system", continues=True)
        session.prompts.add("c", "one", "read", "owner", images=[b"gone"])
        session.prompts.mark_received("c", 1)
        session.rules.add(a_rule(session_id="one"))
        before = session.prompts.open("one"), session.rules.list("r")

        dumped = belongings(session, session.sessions.get("one"))
        session.sessions.delete("one")
        session.rules.remove_session("one")
        session.sessions.insert(a_session())
        restore_belongings(session, "one", dumped)

        assert (session.prompts.open("one"), session.rules.list("r")) == before
        assert session.prompts.images("a") == [b"\xff\xd8\xff first", b"second"]

    @pytest.mark.parametrize("missing", ["rules", "comments", "prompts", "images"])
    def test_the_trash_gives_back_what_an_entry_has(self, session: Unit, missing: str) -> None:
        session.prompts.add("a", "one", "look", "owner")
        session.rules.add(a_rule(session_id="one", repo_id="repo"))
        dumped = json.loads(belongings(session, session.sessions.get("one")))
        for name in {"prompts", "images"} if missing == "prompts" else {missing}:
            del dumped[name]
        session.sessions.delete("one")
        session.rules.remove_session("one")
        session.sessions.insert(a_session())
        restore_belongings(session, "one", json.dumps(dumped))
        assert len(session.prompts.open("one")) == (missing != "prompts")
        assert len(session.rules.list("repo")) == (missing != "rules")

    def test_deleting_takes_what_hangs_on_it_and_leaves_the_money_and_the_log(self, session: Unit) -> None:
        session.prompts.add("p", "one", "hello", "owner")
        session.requests.add(a_request())
        session.control.add(a_control_request())
        session.outbox.add("one", 1, OutgoingKind.PROMPT, "p", b"line")
        session.ledger.add(a_ledger_entry())
        session.events.append(NewEvent("event", "one"))
        session.sessions.delete("one")
        assert session.sessions.find("one") is None
        assert session.agents.latest("one") is None
        assert session.prompts.get("p") is None
        assert session.requests.open() == []
        assert session.outbox.pending("one", 1) == []
        assert session.ledger.totals("one").cost_usd == 0.5
        assert len(session.events.list(session_id="one")) == 1


class TestAgents:
    def test_a_conversation_has_one_process(self, session: Unit) -> None:
        with pytest.raises(WrongStateError):
            session.agents.insert(an_agent(generation=2, state=AgentState.STARTING))
        session.agents.update("one", 1, state=AgentState.EXITED, exit_status="code 0", end_time=NOW)
        session.agents.insert(an_agent(generation=2, state=AgentState.STARTING))
        latest = session.agents.latest("one")
        assert latest is not None
        assert latest.generation == 2
        assert session.agents.alive() == [latest]
        assert [each.generation for each in session.agents.list("one")] == [1, 2]

    def test_an_unknown_one_cannot_change(self, session: Unit) -> None:
        with pytest.raises(NotFoundError):
            session.agents.update("one", 9, handle="x")


class TestPrompts:
    def test_they_keep_their_order_over_a_lost_agent(self, session: Unit) -> None:
        for each in "abc":
            session.prompts.add(each, "one", f"-- {each}", "owner")
        assert session.prompts.mark_sent("a", 1)
        assert session.prompts.mark_sent("b", 1)
        assert not session.prompts.mark_sent("b", 1)
        assert session.prompts.mark_received("a", 3)
        assert not session.prompts.mark_received("a", 3)
        assert not session.prompts.cancel("b")
        session.prompts.requeue_unreceived("one", 2)
        assert [each.id for each in session.prompts.queued("one")] == ["c"]
        session.prompts.requeue_unreceived("one", 1)
        assert [each.id for each in session.prompts.queued("one")] == ["b", "c"]
        assert session.prompts.cancel("b")
        assert [(each.id, each.number) for each in session.prompts.open("one")] == [("c", 3)]
        received = session.prompts.list("one")[0]
        assert (received.state, received.receive_time, received.turn) == (PromptState.RECEIVED, NOW, 3)


class TestRequests:
    def test_the_first_answer_counts_and_the_second_hears_of_it(self, session: Unit) -> None:
        session.requests.add(a_request())
        answered = session.requests.answer("ask", '{"allow": true}', "owner")
        assert (answered.state, answered.answered_by, answered.answer_time) == (RequestState.ANSWERED, "owner", NOW)
        with pytest.raises(RequestClosedError, match="owner") as late:
            session.requests.answer("ask", "{}", "session:two")
        assert late.value.data == {"request": "ask", "by": "owner", "time": str(NOW)}
        with pytest.raises(RequestNotFoundError):
            session.requests.answer("nothing", "{}", "owner")

    def test_what_the_agent_no_longer_asks_is_gone(self, session: Unit) -> None:
        for each in ("a", "b", "c"):
            session.requests.add(a_request(each))
        assert [each.id for each in session.requests.mark_gone("one", 1, "control-b")] == ["b"]
        assert session.requests.mark_gone("one", 2) == []
        with pytest.raises(RequestClosedError, match="no longer"):
            session.requests.answer("b", "{}", "owner")
        assert session.requests.open_count("one") == 2
        assert session.requests.open_counts() == {"one": 2}
        assert {each.state for each in session.requests.mark_gone("one", 1)} == {RequestState.GONE}
        assert session.requests.open() == []

    def test_a_question_outlives_the_process_that_asked(self, session: Unit) -> None:
        session.requests.add(a_request())
        assert [each.control_id for each in session.requests.detach("one", 1)] == [""]
        assert session.requests.by_control("one", 1, "control-ask") is None
        assert session.requests.by_control("one", 1, "") is None
        session.requests.rebind("ask", 2, "again")
        found = session.requests.by_control("one", 2, "again")
        assert found is not None
        assert found.id == "ask"

    def test_they_are_found_by_session_repository_and_prefix(self, session: Unit) -> None:
        session.requests.add(a_request("ab", create_time=2.0))
        session.requests.add(a_request("aa", create_time=3.0))
        assert [each.id for each in session.requests.open("one")] == ["ab", "aa"]
        assert [each.id for each in session.requests.open(repo_id="repo")] == ["ab", "aa"]
        assert session.requests.open(repo_id="other") == session.requests.open("two") == []
        session.requests.mark_gone("one", 1, "control-aa")
        assert [each.id for each in session.requests.find_by_prefix("a")] == ["ab", "aa"]


class TestControl:
    def test_a_repeated_request_is_the_same_one(self, session: Unit) -> None:
        assert session.control.add(a_control_request("b"))
        assert session.control.add(a_control_request("a"))
        assert not session.control.add(a_control_request("b", frame=b"again"))
        assert [each.id for each in session.control.open("one", 1)] == ["b", "a"]
        assert session.control.set_answer("one", 1, "b", b"first")
        assert not session.control.set_answer("one", 1, "b", b"second")
        assert session.control.get("one", 1, "b") == a_control_request("b", answer=b"first")
        assert session.control.cancel("one", 1, "a")
        assert not session.control.cancel("one", 1, "a")
        assert not session.control.set_answer("one", 1, "a", b"late")
        assert session.control.open("one", 1) == []
        assert session.control.prune("one", 1) == 2

    def test_lines_leave_in_order_and_once(self, session: Unit) -> None:
        lines = [session.outbox.add("one", 1, OutgoingKind.PROMPT, "p", bytes([n])) for n in range(4)]
        session.outbox.mark_written([lines[0].id, lines[2].id])
        assert session.outbox.pending("one", 1) == [lines[1], lines[3]]
        assert session.outbox.drop("one", 1) == 4


class TestLedger:
    def test_a_result_is_counted_once(self, session: Unit) -> None:
        assert session.ledger.add(a_ledger_entry())
        assert not session.ledger.add(a_ledger_entry(cost_usd=99.0))
        assert session.ledger.add(a_ledger_entry(model="haiku", cost_usd=0.25))
        assert session.ledger.add(a_ledger_entry("two", time=0.0))
        total = session.ledger.totals("one")
        assert (total.cost_usd, total.tokens) == (0.75, Tokens(2, 4, 6, 8))
        assert session.ledger.total().cost_usd == 1.25
        assert session.ledger.total([]).cost_usd == 0
        assert session.ledger.total(since=1.0).cost_usd == 0.75
        assert [(each.key, each.cost_usd) for each in session.ledger.by(Grouping.DAY)] == [
            ("1970-01-01", 0.5),
            ("1970-01-02", 0.75),
        ]
        assert [each.key for each in session.ledger.by(Grouping.MODEL, session_ids=["one"])] == ["haiku", "opus"]
        assert [each.key for each in session.ledger.by(Grouping.SESSION, since=1.0)] == ["one"]


class TestEvents:
    def test_they_are_listed_by_what_they_are_about(self, session: Unit) -> None:
        appended = session.events.append(
            *(NewEvent(f"k{n % 3}", "one" if n % 2 else "", "repo", time=float(n + 1)) for n in range(10))
        )
        seqs = [event.seq for event in appended]
        assert seqs == list(range(1, 11))
        assert [each.seq for each in session.events.list(session_id="one", repo_id="repo")] == [2, 4, 6, 8, 10]
        assert [each.seq for each in session.events.list(repo_id="repo", kinds=["k0"], after_seq=1)] == [4, 7, 10]
        assert [each.seq for each in session.events.list(limit=2, newest=True)] == [9, 10]
        assert [each.seq for each in session.events.list(limit=2)] == [1, 2]
        assert session.events.list(kinds=[]) == []

    def test_numbers_are_never_given_twice(self, session: Unit) -> None:
        session.events.append(*(NewEvent("old") for _ in range(10)))
        assert session.events.prune(6, limit=3) == 3
        assert session.events.prune(6) == 2
        assert (session.events.first_seq(), session.events.last_seq()) == (6, 10)
        assert session.events.prune(100) == 5
        assert (session.events.first_seq(), session.events.last_seq()) == (11, 10)
        assert session.events.append(NewEvent("new"))[0].seq == 11
        assert session.events.append() == []


class TestTheRest:
    def test_a_call_repeated_gets_the_first_answer(self, unit: Unit) -> None:
        first = unit.calls.put("id", "Create", b"digest", b"answer")
        assert unit.calls.put("id", "Create", b"digest", b"other") == first == unit.calls.get("id")
        with pytest.raises(RequestIdReusedError):
            unit.calls.put("id", "Create", b"another", b"answer")
        given = unit.calls.put("id", "Create", b"digest", b"with a warning", given=True)
        assert unit.calls.put("id", "Create", b"digest", b"other") == given == unit.calls.get("id")
        assert unit.calls.prune(NOW) == 0
        assert unit.calls.prune(NOW + 1) == 1

    def test_an_operation_keeps_its_steps_until_it_ends(self, unit: Unit) -> None:
        begun = unit.operations.begin(Operation("i", Kind.CREATE, "one", data={"path": "/trees/one"}))
        assert unit.operations.list() == unit.operations.list("one") == [begun]
        assert unit.operations.list("two") == unit.operations.list("one", kinds=(Kind.SYNC,)) == []
        assert unit.operations.exclusive("one") is None, "a creation excludes no other operation from its session"
        advanced = unit.operations.advance("i", "made", {"branch": "ramet/one"})
        assert advanced is not None
        assert (advanced.step, advanced.data) == ("made", {"path": "/trees/one", "branch": "ramet/one"})
        assert unit.operations.undo("i")
        assert not unit.operations.undo("i")
        assert unit.operations.advance("i", "made") is None

    def test_a_failed_operation_that_another_call_takes_over_answers_that_call(self, unit: Unit) -> None:
        first, second = (Caller("owner", name, "ArchiveSession", b"digest") for name in ("first", "second"))
        begun = unit.operations.begin(Operation("i", Kind.ARCHIVE, "one", **asdict(first)))
        failed = unit.operations.fail("i", "the disk is full")
        assert failed == unit.operations.exclusive("one")
        assert failed is not None
        assert (failed.failed, failed.caller) == ("the disk is full", first)
        again = unit.operations.take_over(failed, second)
        assert (again.failed, again.caller) == ("", second)
        unit.operations.finish(begun, b"answer")
        assert unit.operations.list() == []
        assert unit.calls.get("first") is None
        known = unit.calls.get("second")
        assert known is not None
        assert (known.method, known.digest, known.response) == ("ArchiveSession", b"digest", b"answer")

    def test_the_trash_expires(self, unit: Unit) -> None:
        entry = unit.trash.add(a_trash_entry(commit="1" * 40))
        assert unit.trash.get("bin") == entry
        assert unit.trash.find_by_prefix("b") == unit.trash.list() == unit.trash.list("repo") == [entry]
        assert unit.trash.expired(99.0) == []
        assert unit.trash.expired(100.0) == [entry]
        with pytest.raises(WrongStateError, match="trash"):
            unit.repos.remove("repo")
        unit.trash.remove("bin")
        unit.repos.remove("repo")

    def test_a_repository_is_its_common_directory(self, session: Unit) -> None:
        session.repos.trust("repo", {"setup": 'setup = "make"'})
        moved = replace(a_repo("again"), common_dir=a_repo().common_dir)
        stored = session.repos.upsert(moved)
        assert (stored.id, stored.name, stored.trusted) == ("repo", "again", True)
        assert session.repos.by_name("again") == session.repos.list() == [stored]
        with pytest.raises(WrongStateError, match="sessions"):
            session.repos.remove("repo")
        with pytest.raises(RepoNotFoundError):
            session.repos.distrust("nothing")

    def test_what_was_trusted_stays_trusted_until_all_trust_is_taken_back(self, unit: Unit) -> None:
        old, new = {"setup": "a", "carry": "c"}, {"setup": "b"}
        assert not unit.repos.get("repo").trusted
        unit.repos.trust("repo", old)
        assert unit.repos.trust("repo", new).trust_digest == digest_of(new)
        trusted = unit.repos.trusted("repo")
        assert trusted.latest == {"setup": "b", "carry": "c"}
        assert trusted.withheld({**old, "teardown": "t"}) == {"teardown": "t"}
        assert not unit.repos.distrust("repo").trusted
        assert unit.repos.trusted("repo") == Trusted()


def test_every_field_can_be_changed_that_nothing_else_manages() -> None:
    fixed = {"id", "repo_id", "parent_id", "agent", "create_time", "forked_from"}
    fixed |= {"contest", "contest_check", "judges"}
    managed = {"state", "state_time", "state_reason", "hold", "update_time", "last_seq", "version"}
    assert SessionColumns.__annotations__.keys() == {each.name for each in fields(Session)} - fixed - managed
    keys, offsets = {"session_id", "generation", "start_time"}, {"journal_offset", "stdin_offset"}
    assert AgentColumns.__annotations__.keys() == {each.name for each in fields(Agent)} - keys - offsets


def plan(unit: Unit, statement: str, *values: object) -> str:
    return " ".join(row[3] for row in unit._scope.db.execute(f"EXPLAIN QUERY PLAN {statement}", values))


def test_long_logs_are_searched_by_index(unit: Unit) -> None:
    traced: list[str] = []
    db = unit._scope.db
    db.executemany(
        "INSERT INTO events (kind, session_id, repo_id, principal, payload, time) VALUES ('k', ?, 'repo', 'd', x'', 0)",
        [(f"s{number % 1000}",) for number in range(200_000)],
    )
    db.set_trace_callback(traced.append)
    assert len(unit.events.list(session_id="s7", repo_id="repo", newest=True)) == 200
    assert len(unit.events.list(repo_id="repo", limit=5, newest=True)) == 5
    db.set_trace_callback(None)
    by_session, by_repo = (plan(unit, statement) for statement in traced)
    assert "USING INDEX events_session (session_id=? AND seq>?)" in by_session
    assert "TEMP B-TREE" not in by_session + by_repo
    assert "SCAN" not in by_session + by_repo


def test_a_row_that_is_read_again_is_the_same_record_until_anything_in_it_changes(unit: Unit) -> None:
    repo = unit.repos.upsert(a_repo())
    unit.sessions.insert(a_session("one", repo_id=repo.id, conversation_id="conversation"))
    first = unit.sessions.get("one")
    assert unit.sessions.get("one") is first
    # These do not change its version.
    unit.events.append(words=[LastWords("one", "conversation", "message", "reads a file")])
    unit.events.flush()
    assert (unit.sessions.get("one").doing, unit.sessions.get("one").version) == ("reads a file", first.version)

    def fail() -> None:
        with unit._scope.savepoint():
            unit.sessions.update("one", turns=7)
            unit.sessions.update("one", expect_version=first.version, turns=8)

    with pytest.raises(ChangedError):
        fail()
    assert unit.sessions.get("one").turns == first.turns
    assert unit.sessions.update("one", turns=9).turns == 9


def test_only_the_last_record_of_a_session_stays_in_memory(unit: Unit) -> None:
    repo = unit.repos.upsert(a_repo())
    unit.sessions.insert(a_session("changes-often", repo_id=repo.id))
    for turns in range(50):
        unit.sessions.update("changes-often", turns=turns)
    alive = [each for each in gc.get_objects() if type(each) is Session and each.id == "changes-often"]
    assert len(alive) <= 2


@pytest.mark.parametrize(
    ("repo", "session_id", "agent", "applies"),
    [
        ("repo", "", "", True),
        ("repo", "one", "", True),
        ("repo", "two", "", False),
        ("other", "", "", False),
        ("repo", "", "codex", True),
        ("repo", "one", "codex", True),
        ("repo", "", "claude", False),
        ("repo", "one", "claude", False),
    ],
)
def test_a_rule_applies_to_the_sessions_and_the_agent_that_it_names(
    session: Unit, repo: str, session_id: str, agent: str, applies: bool
) -> None:
    session.repos.upsert(a_repo("other"))
    found = replace(session.sessions.get("one"), agent="codex")
    rule = session.rules.add(a_rule(repo_id=repo, session_id=session_id, agent=agent))
    assert session.rules.applicable(found) == ([rule] if applies else [])
    assert session.rules.add(a_rule("again", repo_id=repo, session_id=session_id, agent=agent)) == rule
