"""Pure parts of the services: tokens, lookup by name, and messages for every value of every
enum."""

import json
import re
import sqlite3
import stat
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints
from urllib.parse import quote

import pytest
import rametd
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from ramet.v1 import (
    attention_pb2,
    common_pb2,
    daemon_pb2,
    event_pb2,
    landing_pb2,
    orchestration_pb2,
    plan_pb2,
    repo_pb2,
    session_pb2,
    terminal_pb2,
    worktree_pb2,
)
from rametd.agents.presets import Preset
from rametd.api import errors as mapping
from rametd.api import session as session_api
from rametd.api.paging import offset, position_of, time_and_id, token_of
from rametd.domain import errors, models
from rametd.domain.checkpoints import Checkpoint
from rametd.domain.commands import Command
from rametd.domain.comments import Comment
from rametd.domain.conflicts import ConflictKind, FileConflict, LineRange, PairConflict
from rametd.domain.errors import (
    AmbiguousError,
    BadPageTokenError,
    RepoNotFoundError,
    SessionNotFoundError,
    UnauthenticatedError,
)
from rametd.domain.landing import Landing, LandingState
from rametd.domain.models import BackgroundCommand, Mode, PromptState, RequestKind, RequestState, SetupState
from rametd.domain.plans import Plan, PlanThread
from rametd.domain.pull_requests import PullRequest
from rametd.domain.spares import Spare
from rametd.domain.states import State
from rametd.git import FileChange
from rametd.plans.model import Problem
from rametd.services import events, views
from rametd.services.attention import find_request
from rametd.services.creation.forking import ForkRequest
from rametd.services.creation.request import NewSession
from rametd.services.lookup import find_repo, find_session
from rametd.services.messages import enum_numbers, from_message, shared_fields, to_message
from rametd.services.orchestration import Spawn
from rametd.services.plans.applying import Applied, Change
from rametd.services.plans.cleanup import CleanedUp
from rametd.services.plans.status import ThreadStatus
from rametd.services.tokens import Tokens
from rametd.services.upkeep.orphaned import Garbage
from rametd.services.upkeep.scene import Finding
from rametd.services.waiting import Condition, Outcome
from rametd.services.worktrees.sync import Sync
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.rows import a_landing, a_repo, a_request, a_session, an_agent

TOKENS = Tokens(b"k" * 32)


@pytest.fixture
def unit() -> Iterator[Unit]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        yield Unit(Scope(db))


# Tokens


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,47}", fullmatch=True))
def test_a_token_is_good_for_its_own_session(session_id: str) -> None:
    assert TOKENS.check(TOKENS.give(session_id)) == session_id


@given(st.text())
def test_what_was_not_given_is_no_token(token: str) -> None:
    with pytest.raises(UnauthenticatedError):
        TOKENS.check(token)


def test_a_token_of_one_session_is_none_for_another_and_none_under_another_key() -> None:
    mac = TOKENS.give("one").partition(".")[2]
    for token in (f"two.{mac}", f"one.{mac}0", f"one.{mac[:-1]}", f".{mac}", "one.", Tokens(b"j" * 32).give("one")):
        with pytest.raises(UnauthenticatedError):
            TOKENS.check(token)


def test_the_key_is_created_once_and_only_for_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "token.key"
    token = Tokens.load(path).give("one")
    assert Tokens.load(path).check(token) == "one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["token.key"]


# Finding


@pytest.fixture
def family(unit: Unit) -> Unit:
    """Create two repositories, each with a session ``docs``."""
    unit.repos.upsert(a_repo("r1", name="web"))
    unit.repos.upsert(a_repo("r2", name="api"))
    for identity, repo, name in (
        ("abcdx1", "r1", "docs"),
        ("abcdy2", "r2", "docs"),
        ("xyzz3", "r1", "a/b"),
        ("qrs4", "r2", "abcdx1"),
    ):
        unit.sessions.insert(
            a_session(identity, repo_id=repo, name=name, branch=identity, worktree=Path("/t") / identity)
        )
    return unit


@pytest.mark.parametrize(
    ("name", "found"),
    [("abcdx1", "abcdx1"), ("web/docs", "abcdx1"), ("api/docs", "abcdy2"), ("a/b", "xyzz3"), ("web/a/b", "xyzz3"), ("xyzz", "xyzz3"), ("abcdy", "abcdy2"), ("abc", "qrs4")],
)  # fmt: skip
def test_a_session_is_found_by_id_name_or_prefix_in_this_order(family: Unit, name: str, found: str) -> None:
    assert find_session(family, name).id == found


@pytest.mark.parametrize("name", ["docs", "abcd"])
def test_a_name_that_fits_several_lists_them(family: Unit, name: str) -> None:
    with pytest.raises(AmbiguousError) as caught:
        find_session(family, name)
    assert "web/docs (abcdx1)" in caught.value.data["matches"]
    assert "api/docs (abcdy2)" in caught.value.data["matches"]


def test_a_name_that_fits_several_means_the_one_of_the_callers_repository(family: Unit) -> None:
    assert find_session(family, "docs", repo_id="r2").id == "abcdy2"


K = RequestKind


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ((K.REVIEW,), K.REVIEW),
        ((K.REVIEW, K.LANDING), K.LANDING),
        ((K.REVIEW, K.CONFLICT, K.PERMISSION), K.PERMISSION),
        ((K.TRUST, K.REVIEW), K.REVIEW),
    ],
)
def test_a_session_names_its_most_urgent_kind_of_request(
    family: Unit, kinds: tuple[RequestKind, ...], found: RequestKind
) -> None:
    for kind in kinds:
        family.requests.add(a_request(kind, "xyzz3", kind=kind))
    assert find_request(family, "a/b").kind is found


def test_a_session_with_several_equal_requests_lists_them_with_their_kinds(family: Unit) -> None:
    for kind in (K.CONFLICT, K.LANDING, K.REVIEW):
        family.requests.add(a_request(f"id-{kind}", "xyzz3", kind=kind))
    with pytest.raises(AmbiguousError) as caught:
        find_request(family, "a/b")
    assert "2 requests of a/b wait: " in caught.value.message
    assert set(caught.value.data["matches"].split(", ")) == {"id-conflict (conflict)", "id-landing (landing)"}


@pytest.mark.parametrize(
    "name",
    ["", "nope", "xyz", "q", "web/nope", "nowhere/docs", "/", "%", "_bcdx1", "abcdx1x", "\U0010ffff", "ABCDX1"],
)
def test_what_fits_no_session_is_not_found(family: Unit, name: str) -> None:
    with pytest.raises(SessionNotFoundError):
        find_session(family, name)


def test_a_repository_is_found_by_id_name_or_the_innermost_path(family: Unit) -> None:
    family.repos.upsert(a_repo("r3", name="inner", root=Path("/src/r1/inner"), common_dir=Path("/src/r1/inner/.git")))
    assert find_repo(family, "r1").id == "r1"
    assert find_repo(family, "api").id == "r2"
    assert find_repo(family, "/src/r1/inner/deep").id == "r3"
    assert find_repo(family, "/src/r1/other").id == "r1"
    for name in ("", "src/r1", "/src", "/src/r11"):
        with pytest.raises(RepoNotFoundError):
            find_repo(family, name)


# Messages


def values(enum: EnumDescriptor) -> set[int]:
    return {value.number for value in enum.values if value.number}


@pytest.mark.parametrize(
    ("table", "ours", "theirs"),
    [
        *(
            (enum_numbers(theirs, ours), ours, theirs)
            for ours, theirs in (
                (State, session_pb2.SessionState.DESCRIPTOR),
                (Mode, common_pb2.PermissionMode.DESCRIPTOR),
                (PromptState, session_pb2.PromptState.DESCRIPTOR),
                (RequestKind, attention_pb2.AttentionKind.DESCRIPTOR),
                (RequestState, attention_pb2.AttentionState.DESCRIPTOR),
                (LandingState, landing_pb2.LandingState.DESCRIPTOR),
                (ConflictKind, worktree_pb2.ConflictKind.DESCRIPTOR),
            )
        ),
        (session_api.OUTCOMES, Outcome, session_pb2.WaitOutcome.DESCRIPTOR),
    ],
)
def test_an_enum_and_its_message_have_the_same_values(
    table: dict[object, int], ours: type, theirs: EnumDescriptor
) -> None:
    assert set(table) == set(ours)  # type: ignore[call-overload]
    assert sorted(table.values()) == sorted(values(theirs))


def test_a_message_gets_times_enums_paths_and_tuples_from_the_fields_of_its_names() -> None:
    landing = to_message(landing_pb2.Landing, a_landing(create_time=1.5, state=LandingState.HELD), check=("make",))
    assert (landing.create_time.ToMilliseconds(), [*landing.check]) == (1500, ["make"])
    assert landing.state == landing_pb2.LANDING_STATE_HELD
    lines = (LineRange(1, 2), LineRange(4, 4))
    conflict = to_message(worktree_pb2.FileConflict, FileConflict("a", ConflictKind.OVERLAP, lines=lines))
    assert [(each.start, each.end) for each in conflict.lines] == [(1, 2), (4, 4)]
    assert to_message(repo_pb2.Repo, a_repo(), sessions=2).root == str(a_repo().root)
    assert not to_message(session_pb2.Session, a_session(budget_usd=None), background=()).HasField("budget_usd")
    with pytest.raises(ValueError, match="no_field"):
        to_message(repo_pb2.Repo, a_repo(), no_field=1)


@pytest.mark.parametrize(
    ("message", "record", "differ"),
    [
        (attention_pb2.AttentionRequest, models.Request, {"edit", "offers"}),
        (attention_pb2.PermissionRule, models.StoredRule, {"effect"}),
        (daemon_pb2.KindOfAgent, Preset, {"capabilities", "modes"}),
        (landing_pb2.Landing, Landing, set()),
        (landing_pb2.PullRequest, PullRequest, set()),
        (orchestration_pb2.Member, models.Session, set()),
        (orchestration_pb2.Message, models.Prompt, set()),
        (plan_pb2.ApplyPlanResponse, Applied, set()),
        (plan_pb2.CleanUpStep, CleanedUp, set()),
        (plan_pb2.Plan, Plan, {"threads"}),
        (plan_pb2.PlanChange, Change, set()),
        (plan_pb2.PlanProblem, Problem, set()),
        (plan_pb2.Thread, PlanThread, {"mode"}),
        (plan_pb2.ThreadStatus, ThreadStatus, {"thread", "session", "dirty"}),
        (repo_pb2.Repo, models.Repo, set()),
        (session_pb2.BackgroundCommand, BackgroundCommand, set()),
        (session_pb2.Prompt, models.Prompt, set()),
        (terminal_pb2.Command, Command, set()),
        (worktree_pb2.Checkpoint, Checkpoint, set()),
        (worktree_pb2.Comment, Comment, set()),
        (worktree_pb2.Conflict, PairConflict, {"files"}),
        (worktree_pb2.FileChange, FileChange, set()),
        (worktree_pb2.Finding, Finding, set()),
        (worktree_pb2.Garbage, Garbage, set()),
        (worktree_pb2.Spare, Spare, set()),
        (worktree_pb2.TrashEntry, models.TrashEntry, set()),
    ],
)
def test_fields_of_one_name_have_types_that_can_be_converted(
    message: type[Message], record: type, differ: set[str]
) -> None:
    names = get_type_hints(record).keys() & message.DESCRIPTOR.fields_by_name.keys()
    assert {*shared_fields(message, record, differ).names} == names - differ


REQUESTS: list[tuple[Message, type, dict[str, object], set[str]]] = [
    (
        session_pb2.CreateSessionRequest(
            prompt="p", agent="codex", budget_usd=0.0, budget_tokens=9, owns=["src/**"], priority=-1, fetch=True
        ),
        NewSession,
        {"path": Path("/r"), "images": (), "mode": None},
        {"prompt", "agent", "budget_usd", "budget_tokens", "owns", "priority", "fetch"},
    ),
    (session_pb2.CreateSessionRequest(request_id="1"), NewSession, {"path": Path("/r"), "mode": None}, set()),
    (session_pb2.ForkSessionRequest(checkpoint="3"), ForkRequest, {}, {"checkpoint"}),
    (
        orchestration_pb2.SpawnSessionRequest(budget_usd=1.5, after=["a", "b"], notify=True),
        Spawn,
        {"mode": models.Mode.PLAN},
        {"budget_usd", "after", "notify", "prompt"},
    ),
    (worktree_pb2.SyncSessionRequest(fetch=True), Sync, {"rebase": True}, {"fetch"}),
]


@pytest.mark.parametrize(("request_message", "kind", "others", "filled"), REQUESTS)
def test_a_request_fills_fields_of_its_names_and_leaves_defaults(
    request_message: Message, kind: type, others: dict[str, object], filled: set[str]
) -> None:
    made: object = from_message(kind, request_message, **others)
    without = kind(**others, **({"prompt": ""} if kind is Spawn else {}))
    for field in fields(kind):
        value = getattr(made, field.name)
        if field.name in filled:
            given = getattr(request_message, field.name)
            assert value == (tuple(given) if isinstance(value, tuple) else given)
        elif not callable(value):
            assert value == getattr(without, field.name)


def test_every_condition_of_the_contract_can_be_waited_for() -> None:
    assert set(session_api.CONDITIONS) == values(session_pb2.WaitCondition.DESCRIPTOR) | {0}
    assert set(session_api.CONDITIONS.values()) == set(Condition)


def test_every_payload_can_be_built_and_audited_kinds_exist() -> None:
    payloads = {field.name for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields}
    assert set(events.KINDS.values()) == payloads
    assert set(events.AUDITED) <= payloads


def test_a_row_fills_every_field_of_its_message(unit: Unit) -> None:
    unit.repos.upsert(a_repo())
    row = a_session(
        parent_id="p", model="opus", effort="high", state=State.WAITING, state_reason="why", turns=1, cost_usd=1.0, budget_usd=2.0, budget_tokens=9, priority=3,
        owns=("a",), forbids=("b",), after=("c",), last_seq=7, root_id="p", result="done",
        port_base=20000, port_count=2, setup=SetupState.DONE, forked_from="f", plan_id="plan", thread="t", landed_reason="merged",
        turn_seconds=1.0, contest="c", contest_check="make", judges="d",
    )  # fmt: skip
    message = views.session_message(
        row, repo="repo", attention=1, agent=an_agent(background_commands=(BackgroundCommand("b", "npm", 1.0),))
    )
    unset = {field.name for field in message.DESCRIPTOR.fields} - {field.name for field, _ in message.ListFields()}
    assert unset == {"worktree_gone", "worktree_fault", "under_way"}, (
        "those are no columns: `views.mark_gone` computes them"
    )


@pytest.mark.parametrize(
    "answer",
    [
        {"decision": "approve", "updated_input": "{}", "scope": 2, "mode": 1},
        {"decision": "deny", "message": "no"},
        {"decision": "reply", "answers": ["a", "b"]},
    ],
)
def test_an_answer_is_returned_unchanged(answer: dict[str, object]) -> None:
    request = a_request(state=RequestState.ANSWERED, answer=json.dumps(answer), answered_by="owner", answer_time=2.0)
    message = views.request_message(request, session="s", repo="r")
    assert message.resolution.WhichOneof("decision") == answer["decision"]
    assert message.answer_time.seconds == 2


# Errors and pages


def leaves(base: type[errors.RametError]) -> Iterator[type[errors.RametError]]:
    for each in base.__subclasses__():
        yield from leaves(each)
        if each.__module__ == errors.__name__:
            yield each


def test_every_error_has_one_status_and_its_own_reason() -> None:
    reasons = [each.__dict__["reason"] for each in leaves(errors.RametError)]
    assert all(reason.replace("_", "").isupper() for reason in reasons)
    for each in leaves(errors.RametError):
        code, message, details = mapping.status_of(each("what\nhappened", hint="do"))
        assert (code in mapping.CODES.values(), message) == (True, "what happened")
        assert len(details) < 8192


@pytest.mark.parametrize("letter", "x株%")
def test_what_travels_with_an_error_fits_into_headers(letter: str) -> None:
    """Return the size as in HTTP/2: a message percent-encoded, details in base 64; from 8 KiB on an
    answer may be dropped."""
    long = letter * 100_000
    _, message, details = mapping.status_of(errors.InvalidInputError(long, hint=long, a=long))
    assert len(message) >= 150
    assert len(quote(message)) + len(b64encode(details)) < 8192 - 300


def is_position(made: object) -> bool:
    return isinstance(made, list) and [type(part) for part in made] == [int, str]


@given(
    st.text()
    | st.recursive(st.integers() | st.text(), st.lists)
    .filter(lambda made: not is_position(made))
    .map(lambda made: token_of("sessions", made))
)
def test_no_page_token_but_our_own_is_taken(token: str) -> None:
    if not token:
        assert position_of("sessions", token, time_and_id) is None
        return
    with pytest.raises(BadPageTokenError):
        position_of("sessions", token, time_and_id)


@given(st.floats(0, 1e12), st.text(), st.integers(0, (1 << 63) - 1))
def test_a_page_token_leads_back_to_its_position_and_is_none_for_another_list(at: float, name: str, seq: int) -> None:
    assert position_of("sessions", token_of("sessions", [at, name]), time_and_id) == (at, name)
    assert position_of("events", token_of("events", seq), offset) == seq
    for position in (seq, -1 - seq, 1 << 63, True, [seq], str(seq)):
        with pytest.raises(BadPageTokenError):
            position_of("events", token_of("events" if position is not seq else "requests", position), offset)


READS_THE_LOG = frozenset(
    {
        "api/event.py",
        "services/hub.py",
        "services/members.py",
        "services/notifications/notifier.py",
        "services/delivery.py",
        "services/agents/questions.py",
    }
)
"""Modules that may read the event log: those that serve events, follow them with a cursor, or show
a conversation."""


def test_no_service_reads_the_event_log_as_a_table() -> None:
    root = Path(rametd.__path__[0])
    reads = re.compile(r"\bevents\.(list|each|page)\(")
    found = {str(path.relative_to(root)) for path in root.rglob("*.py") if reads.search(path.read_text())}
    assert found == READS_THE_LOG
