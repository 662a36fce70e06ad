"""Answers and waits for sessions, with a fake daemon."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import attention_pb2, common_pb2, session_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.fake_state import Refusal


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def lines(text: str) -> list[str]:
    return text.splitlines()


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (session_pb2.WAIT_OUTCOME_DONE, 0),
        (session_pb2.WAIT_OUTCOME_ATTENTION, 4),
        (session_pb2.WAIT_OUTCOME_TIMEOUT, 124),
        (session_pb2.WAIT_OUTCOME_FAILED, 1),
    ],
)
def test_the_outcome_of_a_wait_is_its_exit_code(
    world: World, outcome: session_pb2.WaitOutcome.ValueType, code: int
) -> None:
    session = world.state.session("fix", state=session_pb2.SESSION_STATE_FAILED, state_reason="no login")
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=outcome, sessions=[session])
    result = world.run("wait", "fix", "--timeout", "60", "--json")
    assert result.code == code
    assert list(json.loads(result.out)) == ["outcome", "sessions", "open_requests", "reason"]
    assert bool(result.err) == bool(code)
    (sent,) = world.state.called("WaitSessions")
    assert 30e9 < sent.timeout.ToNanoseconds() <= 60e9  # the lookup of the name has ended
    assert sent.condition == session_pb2.WAIT_CONDITION_IDLE


def test_wait_passes_on_what_is_waited_for(world: World) -> None:
    world.state.session("a")
    world.state.session("b")
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE)
    assert world.run("wait", "a", "b", "--any", "--for", "ended").code == 0
    (sent,) = world.state.called("WaitSessions")
    assert (sent.any, sent.condition, len(sent.sessions)) == (True, session_pb2.WAIT_CONDITION_ENDED, 2)
    assert not sent.HasField("timeout")


def test_a_daemon_that_is_silent_does_not_hold_up_a_wait_with_a_timeout(world: World) -> None:
    world.state.session("a")
    assert world.run("wait", "a", "--timeout", "0.1").code == 124


def test_approve_once_or_for_the_session(world: World) -> None:
    session = world.state.session("fix")
    world.state.request(session, tool="Bash", input_json="{}")
    assert world.run("approve", "fix").out == "fix  permission: Bash  approved by owner\n"
    world.run("approve", "01beef00", "--session", "--mode", "acceptEdits")
    once, always = world.state.called("ResolveRequest")
    assert (once.request, once.resolution.approve.scope) == ("fix", attention_pb2.APPROVAL_SCOPE_ONCE)
    assert always.resolution.approve.scope == attention_pb2.APPROVAL_SCOPE_SESSION
    assert always.resolution.approve.mode == common_pb2.PERMISSION_MODE_ACCEPT_EDITS


def editor(world: World, script: str) -> dict[str, str]:
    path = world.home / "editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return {"VISUAL": str(path)}


def test_approve_edit_sends_the_changed_input(world: World) -> None:
    world.state.request(world.state.session("fix"), tool="Bash", input_json='{"command": "make"}')
    result = world.run(
        "approve",
        "fix",
        "--edit",
        env=editor(world, """sed 's/make/make test/' "$1" > "$1.new" && mv "$1.new" "$1" """),
    )
    assert result.code == 0, result.err
    (sent,) = world.state.called("ResolveRequest")
    assert json.loads(sent.resolution.approve.updated_input_json) == {"command": "make test"}


@pytest.mark.parametrize("script", ["exit 1", "true", """echo '[1]' > "$1" """, """echo '{' > "$1" """])
def test_approve_edit_answers_nothing_unless_it_was_saved_as_an_object(world: World, script: str) -> None:
    world.state.request(world.state.session("fix"), tool="Bash", input_json='{"command": "make"}')
    result = world.run("approve", "fix", "--edit", env=editor(world, script))
    assert result.code in {1, 2}
    assert "nothing was approved" in result.err
    assert world.state.called("ResolveRequest") == []


def test_deny_sends_the_reason(world: World) -> None:
    world.state.request(world.state.session("fix"), tool="Bash", input_json="{}")
    assert world.run("deny", "fix", "-m", "not here").out == "fix  permission: Bash  denied by owner: not here\n"


def test_answer_takes_numbers_of_choices(world: World) -> None:
    data = {"questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
    world.state.request(
        world.state.session("fix"), kind=attention_pb2.ATTENTION_KIND_QUESTION, input_json=json.dumps(data)
    )
    assert world.run("answer", "fix", "2").code == 0
    assert world.run("answer", "fix", "- neither of them").code == 0
    assert world.run("answer", "fix", "1", "2").code == 2
    answers = [list(call.resolution.reply.answers) for call in world.state.called("ResolveRequest")]
    assert answers == [["B"], ["- neither of them"]]


def test_a_request_that_is_closed_is_a_typed_refusal(world: World) -> None:
    world.state.request(world.state.session("fix"), input_json="{}")
    world.state.refusals["ResolveRequest"] = [
        Refusal("FAILED_PRECONDITION", "owner has answered it", "REQUEST_CLOSED", "see: rametctl inbox")
    ]
    result = world.run("approve", "fix", "--json")
    assert (result.code, json.loads(result.out)["error"]["reason"]) == (1, "REQUEST_CLOSED")


def test_the_inbox_shows_all_and_json_has_the_input_as_json(world: World) -> None:
    assert world.run("inbox").out == "nothing waits for you\n"
    world.state.request(world.state.session("fix"), tool="Bash", input_json='{"command": "make"}', reason="asks")
    assert "  $ make" in lines(world.run("inbox").out)
    (shown,) = json.loads(world.run("inbox", "--json").out)
    assert (shown["kind"], shown["tool"], shown["input"], shown["reason"]) == (
        "permission", "Bash", {"command": "make"}, "asks",
    )  # fmt: skip


# Several at once, and never one that was not shown


def test_several_are_approved_and_a_failure_does_not_stop_the_others(world: World) -> None:
    for name in ("a", "b"):
        world.state.request(world.state.session(name), tool="Bash", input_json="{}")
    result = world.run("approve", "a", "nix", "b", "a", "--json")
    assert result.code == 3
    shown = json.loads(result.out)
    assert [each.get("session_name", "error" in each) for each in shown] == ["a", True, "b"]
    assert len(world.state.called("ResolveRequest")) == 3


@pytest.mark.parametrize("verb", ["interrupt", "pause", "resume", "stop"])
def test_verbs_on_sessions_take_several(world: World, verb: str) -> None:
    world.state.session("a")
    world.state.session("b")
    result = world.run(verb, "a", "b", "--json")
    assert (result.code, [each["name"] for each in json.loads(result.out)]) == (0, ["a", "b"])


def test_a_name_means_only_a_request_that_was_shown_on_the_terminal(world: World) -> None:
    (world.home / "state").mkdir()
    session = world.state.session("fix")
    first = world.state.request(session, tool="Bash", input_json='{"command": "make"}')
    refused = world.run("approve", "fix", terminal=True)
    assert refused.code == 1
    assert "$ make" in refused.out
    assert "you have not been shown this request of fix" in refused.err
    assert world.run("approve", "fix", terminal=True).code == 0, "now it was shown"
    first.state = attention_pb2.ATTENTION_STATE_OPEN
    assert world.run("approve", "fix", terminal=True).code == 0
    world.state.requests.clear()
    later = world.state.request(session, id="fe00beef", tool="Bash", input_json='{"command": "rm -rf /"}')
    assert world.run("approve", "fix", terminal=True).code == 1, "there is a new one"
    assert world.run("deny", later.id[:6], terminal=True).code == 0, "an id is unambiguous"
    assert world.run("approve", "fix").code == 0, "a script has no screen"


@pytest.mark.parametrize("how", [("inbox",), ("inbox", "fix"), ("inbox", "--full")])
def test_the_inbox_counts_as_shown(world: World, how: tuple[str, ...]) -> None:
    (world.home / "state").mkdir()
    world.state.request(world.state.session("fix"), tool="Bash", input_json='{"command": "make"}')
    assert world.run(*how, terminal=True, env={"PAGER": "cat"}).code == 0
    assert world.run("approve", "fix", terminal=True).code == 0


def test_done_closes_finished_turns_and_nothing_else(world: World) -> None:
    for name in ("a", "b", "c"):
        kind = attention_pb2.ATTENTION_KIND_PERMISSION if name == "c" else attention_pb2.ATTENTION_KIND_REVIEW
        world.state.request(world.state.session(name), kind=kind)
    assert world.run("done", "c").code == 1
    assert world.run("done").code == 2
    assert world.run("done", "a").out == "a  review  done\n"
    assert len(json.loads(world.run("done", "--all", "--json").out)) >= 1
    assert world.state.requests["03beef00-1111-2222"].state == attention_pb2.ATTENTION_STATE_OPEN


OFFERS = [
    attention_pb2.RuleOffer(rules=["Bash(git add:*)", "Bash(git commit:*)"]),
    attention_pb2.RuleOffer(rules=["Bash(git add -A && git commit)"]),
]


@pytest.mark.parametrize(
    ("typed", "scope", "rules"),
    [
        (["--always", "fix"], attention_pb2.APPROVAL_SCOPE_ALWAYS, []),
        (["fix", "--always"], attention_pb2.APPROVAL_SCOPE_ALWAYS, []),
        (["fix", "--always=1"], attention_pb2.APPROVAL_SCOPE_ALWAYS, ["Bash(git add:*)", "Bash(git commit:*)"]),
        (["fix", "--always=2"], attention_pb2.APPROVAL_SCOPE_ALWAYS, ["Bash(git add -A && git commit)"]),
        (["--always", "git commit *", "fix"], attention_pb2.APPROVAL_SCOPE_ALWAYS, ["git commit *"]),
        (["fix", "--session", "Bash(git:*)"], attention_pb2.APPROVAL_SCOPE_SESSION, ["Bash(git:*)"]),
    ],
)
def test_a_rule_is_the_first_offer_one_by_number_or_as_typed(
    world: World, typed: list[str], scope: attention_pb2.ApprovalScope.ValueType, rules: list[str]
) -> None:
    world.state.request(world.state.session("fix"), tool="Bash", input_json="{}", offers=OFFERS)
    result = world.run("approve", *typed)
    assert result.code == 0, result.err
    (sent,) = world.state.called("ResolveRequest")
    assert (sent.resolution.approve.scope, list(sent.resolution.approve.rules)) == (scope, rules)


def test_an_offer_that_is_not_there_is_refused_and_the_inbox_shows_those_that_are(world: World) -> None:
    world.state.request(world.state.session("fix"), tool="Bash", input_json="{}", offers=OFFERS)
    assert "offers are 1 to 2" in world.run("approve", "fix", "--always=3").err
    shown = world.run("inbox", "fix").out
    assert "1) Bash(git add:*), Bash(git commit:*)" in shown
    assert world.state.called("ResolveRequest") == []


def test_an_answer_is_chosen_with_the_arrow_keys(world: World) -> None:
    data = {"questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}
    asked = world.state.request(
        world.state.session("fix"), kind=attention_pb2.ATTENTION_KIND_QUESTION, input_json=json.dumps(data)
    )
    with world.terminal("answer", asked.id[:8]) as terminal:
        terminal.shows("❯ 1) A")
        terminal.type("\x1b[B")
        terminal.shows("❯ 2) B")
        terminal.type("\r")
        assert terminal.ends() == 0
    (sent,) = world.state.called("ResolveRequest")
    assert list(sent.resolution.reply.answers) == ["B"]


def test_leaving_a_choice_answers_nothing_and_words_can_be_typed(world: World) -> None:
    data = {"questions": [{"question": "Which?", "options": [{"label": "A"}]}]}
    asked = world.state.request(
        world.state.session("fix"), kind=attention_pb2.ATTENTION_KIND_QUESTION, input_json=json.dumps(data)
    )
    with world.terminal("answer", asked.id[:8]) as terminal:
        terminal.shows("❯ 1) A")
        terminal.type("q")
        assert terminal.ends() == 1
    assert world.state.called("ResolveRequest") == []
    with world.terminal("answer", asked.id[:8]) as terminal:
        terminal.shows("❯ 1) A")
        terminal.type("\x1b[A")
        terminal.shows("❯ something else")
        terminal.type("\r")
        terminal.shows("> ")
        terminal.type("neither\r")
        assert terminal.ends() == 0
    (sent,) = world.state.called("ResolveRequest")
    assert list(sent.resolution.reply.answers) == ["neither"]
    assert world.run("answer", asked.id[:8]).code == 2, "no person can be asked"


@pytest.mark.parametrize(
    ("kind", "words", "asked"),
    [
        ("PERMISSION", ["approve", "fix"], True),
        ("PERMISSION", ["approve", "fix", "--always"], True),
        ("PERMISSION", ["approve", "fix", "--mode", "plan"], False),
        ("PLAN", ["approve", "fix", "--mode", "plan"], True),
        ("REVIEW", ["approve", "fix"], True),
        ("REVIEW", ["approve", "fix", "--mode", "plan"], False),
        ("REVIEW", ["approve", "fix", "--always=2"], False),
        ("REVIEW", ["deny", "fix"], False),
        ("REVIEW", ["deny", "fix", "-m", "why"], True),
        ("QUESTION", ["approve", "fix"], False),
        ("QUESTION", ["answer", "fix", "1"], True),
        ("PLAN", ["answer", "fix", "1"], False),
    ],
)
def test_a_person_is_asked_only_about_a_kind_of_request_that_the_answer_fits(
    world: World, kind: str, words: list[str], asked: bool
) -> None:
    session = world.state.session("fix")
    number = attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}")
    world.state.request(session, kind=number, tool="Bash", input_json="{}")
    result = world.run(*words, terminal=True)
    assert ("you have not been shown this request" in result.err) == asked
    assert bool(world.state.called("ResolveRequest")) != asked
