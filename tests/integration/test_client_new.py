"""`new` with a fake daemon: its calls, its output, its exit codes."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ramet.v1 import common_pb2, event_pb2, repo_pb2, session_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.fake_state import Call


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_new_sends_everything_and_prints_three_lines(world: World) -> None:
    result = world.run(
        *("new", "fix the login", "--name", "fix", "--branch", "b", "--base", "main", "--model", "opus"),
        *("--mode", "acceptEdits", "--budget", "2.5", "--own", "src/**", "--own", "docs/**", "--forbid", "x"),
        *("--parent", "p", "--priority", "-3", "--after", "a1", "--after", "a2"),
        env={"ANTHROPIC_API_KEY": "key", "SECRET": "no"},
    )
    assert (result.code, result.err) == (0, "")
    assert lines(result.out) == ["name      fix", "branch    ramet/fix", "worktree  /trees/1"]
    (sent,) = world.state.called("CreateSession")
    assert sent.request_id
    sent.request_id = ""
    carried = world.state.carried("CreateSession")
    assert carried["ANTHROPIC_API_KEY"] == "key"
    assert "SECRET" not in carried
    assert sent == session_pb2.CreateSessionRequest(
        path=str(world.cwd), prompt="fix the login", name="fix", branch="b", base_ref="main", model="opus",
        mode=common_pb2.PERMISSION_MODE_ACCEPT_EDITS, budget_usd=2.5, owns=["src/**", "docs/**"], forbids=["x"],
        parent="p", priority=-3, after=["a1", "a2"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "prompt"),
    [
        (["--", "--help"], "--help"),
        (["--help me"], "--help me"),
        (["-----"], "-----"),
        (["--name", "- x", "- do it"], "- do it"),
    ],
)
def test_a_prompt_may_begin_with_dashes(world: World, args: list[str], prompt: str) -> None:
    assert world.run("new", *args).code == 0
    assert world.state.called("CreateSession")[0].prompt == prompt


def test_a_mistyped_option_is_an_error_that_names_it(world: World) -> None:
    result = world.run("new", "--modle", "x")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("rametctl: no such option '--modle'")
    assert result.err.endswith(" see: rametctl new --help\n")
    assert len(lines(result.err)) == 1
    assert world.state.calls == []


def test_a_prompt_of_five_megabytes_arrives_completely(world: World) -> None:
    prompt = "- " + "ü" * 2_500_000
    assert world.run("new", stdin=prompt.encode()).code == 0
    assert world.state.called("CreateSession")[0].prompt == prompt


def test_an_empty_prompt_is_wrong_usage(world: World) -> None:
    for result in (world.run("new", ""), world.run("new", stdin=b"\n"), world.run("send", "x", "  ")):
        assert result.code == 2
        assert "the prompt is empty" in result.err
    assert world.state.calls == []


def test_without_a_prompt_the_session_is_idle_with_a_hint(world: World) -> None:
    result = world.run("new", "--name", "later")
    assert lines(result.out)[-1] == "The session is idle; send it a prompt: rametctl send later PROMPT"


def test_new_json_is_the_session_and_nothing_else(world: World) -> None:
    world.state.warnings = ("setup failed",)
    result = world.run("new", "do", "--json")
    assert json.loads(result.out)["name"] == "made-up"
    assert result.err == "rametctl: warning: setup failed\n"


def test_new_wait_exits_with_4_and_the_command_that_answers(world: World) -> None:
    session = world.state.session("other")
    asked = world.state.request(session, tool="Bash", input_json="{}")
    world.state.wait = session_pb2.WaitSessionsResponse(
        outcome=session_pb2.WAIT_OUTCOME_ATTENTION,
        sessions=[session_pb2.Session(id="00000002-aaaa", attention=1)],
        open_requests=[asked],
    )
    result = world.run("new", "do", "--wait", "--json")
    assert result.code == 4
    assert json.loads(result.out)["attention"] == 1
    assert result.err == (
        "rametctl: other needs you: permission: Bash; see: rametctl inbox; answer: rametctl approve 01beef00\n"
    )


def test_wait_prints_the_complete_reply_to_a_pipe(world: World) -> None:
    session = session_pb2.Session(id="00000001-aaaa", name="fix", state=session_pb2.SESSION_STATE_IDLE, turns=1)
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE, sessions=[session])

    def end(call: Call) -> None:
        if call.method == "WaitSessions":
            ended = event_pb2.TurnEnded(text="\n".join(f"word {number}" for number in range(14)) + "\n")
            world.state.event(session, turn_ended=ended)

    world.state.on_call = end
    shown = world.run("new", "do", "--name", "fix", "--wait").out
    assert [each.removeprefix("● ").strip() for each in lines(shown)] == [
        "name      fix", "branch    ramet/fix", "worktree  /trees/1", "",
        *(f"word {number}" for number in range(14)), "fix is idle, 1 turn, cost unknown",
    ]  # fmt: skip
    assert lines(world.run("send", "fix", "more", "--wait").out)[-2:] == [
        "  word 13",
        "fix is idle, 1 turn, cost unknown",
    ]
    assert json.loads(world.run("new", "do", "--wait", "--json").out)["name"] == "made-up"


def test_send_wait_says_that_a_held_session_keeps_the_prompt(world: World) -> None:
    held = world.state.session("held", state=session_pb2.SESSION_STATE_PAUSED, state_reason="attached at pts/4")
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_FAILED, sessions=[held])
    result = world.run("send", "held", "do", "--wait")
    assert result.code == 1
    assert lines(result.err)[0] == (
        "queued until the program that has the conversation ends: the session is attached at pts/4"
    )


@pytest.mark.parametrize("verb", ["new", "send", "fork"])
def test_wait_says_once_what_holds_the_turn(world: World, verb: str) -> None:
    origin = world.state.session("origin")
    limit, overload = "usage limit; continues by itself at 14:30", "overloaded; tries again at 14:31"
    reasons = iter([limit, limit, overload])

    def hold(call: Call) -> None:
        if call.method == "WaitSessions":
            (session,) = [each for each in world.state.sessions.values() if each.id in call.request.sessions]
            reason = next(reasons, "")
            outcome = session_pb2.WAIT_OUTCOME_TIMEOUT if reason else session_pb2.WAIT_OUTCOME_DONE
            session.name, session.state_reason = "held", reason
            world.state.wait = session_pb2.WaitSessionsResponse(outcome=outcome, sessions=[session])

    world.state.on_call = hold
    arguments = {"new": ("new", "do"), "send": ("send", origin.name, "do"), "fork": ("fork", origin.name, "do")}
    result = world.run(*arguments[verb], "--wait")
    assert lines(result.err) == [f"held: {limit}", f"held: {overload}"]


@pytest.mark.parametrize("verb", ["new", "send", "fork"])
def test_wait_exits_with_124_after_its_timeout(world: World, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at what holds the turn is not the end of the wait."""
    monkeypatch.setattr("rametctl.nouns.sessions.LOOK_S", 15)
    elapsed = iter([0.0, 0.0, 15.0])
    monkeypatch.setattr("rametctl.nouns.sessions.time", SimpleNamespace(monotonic=lambda: next(elapsed)))
    origin = world.state.session("origin", state_reason="usage limit")
    held = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_TIMEOUT, sessions=[origin])
    world.state.wait = held
    arguments = {"new": ("new", "do"), "send": ("send", "origin", "do"), "fork": ("fork", "origin", "do")}
    result = world.run(*arguments[verb], "--wait", "--timeout", "20")
    assert result.code == 124
    assert lines(result.err)[0] == "origin: usage limit"
    assert [call.timeout.ToSeconds() for call in world.state.called("WaitSessions")] == [15, 5]
    refused = world.run(*arguments[verb], "--timeout", "20")
    assert (refused.code, "--timeout needs --wait" in refused.err) == (2, True)
    assert len(world.state.called("WaitSessions")) == 2


@pytest.mark.parametrize("verb", ["new", "send", "fork"])
@pytest.mark.parametrize("size", [1, 30, 400])
def test_wait_prints_the_reply_to_its_own_prompt(world: World, verb: str, size: int) -> None:
    """A message of the daemon may start a turn before the wait ends."""
    origin = world.state.session("origin")
    prompts = {"new": "first", "fork": "first", "send": "p1"}

    def turn(session: session_pb2.Session, prompt_id: str, words: str) -> None:
        world.state.event(session, prompt_received=event_pb2.PromptReceived(prompt_id=prompt_id))
        for _ in range(size):
            world.state.event(session, turn_started=event_pb2.TurnStarted())
        world.state.event(session, turn_ended=event_pb2.TurnEnded(text=words))

    def end(call: Call) -> None:
        if call.method == "WaitSessions":
            (session,) = [each for each in world.state.sessions.values() if each.id in call.request.sessions]
            session.state = session_pb2.SESSION_STATE_IDLE
            if verb == "send":
                turn(session, "earlier", "before")
            turn(session, prompts[verb], "mine")
            turn(session, "of the daemon", "another's")
            world.state.wait = session_pb2.WaitSessionsResponse(
                outcome=session_pb2.WAIT_OUTCOME_DONE, sessions=[session]
            )

    world.state.on_call = end
    arguments = {"new": ("new", "do"), "send": ("send", origin.name, "do"), "fork": ("fork", origin.name, "do")}
    shown = lines(world.run(*arguments[verb], "--wait").out)
    assert [each for each in shown if each.startswith("● ")] == ["● mine"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["new", "fix", "the", "login"], "the prompt is one argument, and 'the login' is left over; put the prompt in"),
        (["send", "fix", "- a", "- b"], "the prompt is one argument, and '- b' is left over; put the prompt in quotes"),
        (["new", "-rf", "everything"], "no such option '-r'; see: "),
        (
            ["new", "-fix the login"],
            "the prompt file 'ix the login' cannot be read: No such file or directory; put -- ",
        ),
    ],
)
def test_a_prompt_that_is_taken_for_something_else_says_how_it_is_written(
    world: World, args: list[str], said: str
) -> None:
    result = world.run(*args)
    assert result.code == 2
    assert result.err.startswith(f"rametctl: {said}")
    assert world.state.calls == []


def test_base_and_existing_exclude_each_other(world: World) -> None:
    assert world.run("new", "x", "--base", "a", "--existing", "b").code == 2


def test_repo_names_another_repository_by_its_name(world: World) -> None:
    world.state.repos["r1"] = repo_pb2.Repo(id="r1", name="shop", root="/src/shop")
    world.run("new", "x", "--repo", "shop")
    assert world.state.called("CreateSession")[0].path == "/src/shop"


def test_piped_text_is_never_dropped(world: World) -> None:
    world.state.session("fix")
    for verb in (["new", "do it"], ["new", "--idle"], ["send", "fix", "do it"], ["fork", "fix", "do it"]):
        result = world.run(*verb, stdin=b"the text")
        assert (result.code, result.out) == (2, "")
        assert "given, and text on standard input; " in result.err
        assert "</dev/null" in result.err
    assert not {call.method for call in world.state.calls} & {"CreateSession", "SendPrompt", "ForkSession"}
    assert world.run("send", "fix", "do it", "-f", "-", stdin=b"the text").code == 0
    assert world.state.called("SendPrompt")[0].prompt == "do it\n\nthe text"


def test_an_idle_session_is_created_beside_a_pipe_that_stays_open(world: World) -> None:
    with world.popen("new", "--idle", "--name", "later", stdin=subprocess.PIPE) as process:
        assert process.wait(timeout=30) == 0
    (sent,) = world.state.called("CreateSession")
    assert sent.prompt == ""


def test_the_worktree_of_an_archived_session_counts_as_no_repository(world: World) -> None:
    world.state.session("fix")
    link = world.cwd / ".git"
    for git_dir, listed in (("gone/.git/worktrees/fix", ""), (".", str(world.cwd))):
        link.write_text(f"gitdir: {git_dir}\n")
        assert world.run("ls", "--json").code == 0
        assert world.state.called("ListSessions")[-1].repo == listed
