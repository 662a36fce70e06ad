"""Each verb against a daemon with canned answers: what it asks, what it prints, how it leaves."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import attention_pb2, common_pb2, daemon_pb2, event_pb2, repo_pb2, session_pb2, worktree_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.fake_daemon import Call, Refusal


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def lines(text: str) -> list[str]:
    return text.splitlines()


# new


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
    assert sent == session_pb2.CreateSessionRequest(
        path=str(world.cwd), prompt="fix the login", name="fix", branch="b", base_ref="main", model="opus",
        mode=common_pb2.PERMISSION_MODE_ACCEPT_EDITS, budget_usd=2.5, owns=["src/**", "docs/**"], forbids=["x"],
        parent="p", priority=-3, after=["a1", "a2"], environment={"ANTHROPIC_API_KEY": "key"},
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


def test_a_prompt_of_five_megabytes_arrives_whole(world: World) -> None:
    prompt = "- " + "ü" * 2_500_000
    assert world.run("new", stdin=prompt.encode()).code == 0
    assert world.state.called("CreateSession")[0].prompt == prompt


def test_an_empty_prompt_is_wrong_usage(world: World) -> None:
    for result in (world.run("new", ""), world.run("new", stdin=b"\n"), world.run("send", "x", "  ")):
        assert result.code == 2
        assert "the prompt is empty" in result.err
    assert world.state.calls == []


def test_without_a_prompt_the_session_is_idle_and_it_is_said_how_to_go_on(world: World) -> None:
    result = world.run("new", "--name", "later")
    assert lines(result.out)[-1] == "It is idle. Tell it what to do: rametctl send later PROMPT"


def test_new_json_is_the_session_and_nothing_else(world: World) -> None:
    world.state.warnings = ("setup failed",)
    result = world.run("new", "do", "--json")
    assert json.loads(result.out)["name"] == "made-up"
    assert result.err == "rametctl: warning: setup failed\n"


def test_new_wait_leaves_with_4_and_the_command_that_answers(world: World) -> None:
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
        "rametctl: other waits for a person: permission: Bash; see: rametctl inbox, answer: rametctl approve 01beef00\n"
    )


def test_new_wait_prints_what_was_made_and_what_was_said_at_the_end(world: World) -> None:
    session = session_pb2.Session(id="00000001-aaaa", name="fix", state=session_pb2.SESSION_STATE_IDLE, turns=1)
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE, sessions=[session])

    def end(call: Call) -> None:
        if call.method == "WaitSessions":
            ended = event_pb2.TurnEnded(text="\n".join(f"word {number}" for number in range(14)) + "\n")
            world.state.event(session, turn_ended=ended)

    world.state.on_call = end
    assert lines(world.run("new", "do", "--name", "fix", "--wait").out) == [
        "name      fix", "branch    ramet/fix", "worktree  /trees/1", "",
        *(f"word {number}" for number in range(12)), "… 2 more lines", "fix is idle, 1 turn",
    ]  # fmt: skip
    assert lines(world.run("send", "fix", "more", "--wait").out)[-2:] == ["… 2 more lines", "fix is idle, 1 turn"]
    assert json.loads(world.run("new", "do", "--wait", "--json").out)["name"] == "made-up"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["new", "fix", "the", "login"], "the prompt is one argument, and 'the login' is left over; put the prompt in"),
        (["send", "fix", "- a", "- b"], "the prompt is one argument, and '- b' is left over; put the prompt in quotes"),
        (["new", "-rf", "everything"], "no such option '-r'; put -- before a prompt that begins with a dash; see: "),
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


# ls and show


def test_ls_shows_what_needs_a_person(world: World) -> None:
    world.state.session("fix", state=session_pb2.SESSION_STATE_FAILED, state_reason="no disk", turns=2, cost_usd=0.126)
    result = world.run("ls")
    header, row = lines(result.out)
    assert header.split() == ["NAME", "STATE", "BRANCH", "TURNS", "COST", "AGE", "NEEDS"]
    assert row.split()[:5] == ["fix", "failed", "ramet/fix", "2", "$0.13"]
    assert row.endswith("no disk")
    assert "\x1b" not in result.out


def test_an_empty_list_says_how_to_begin(world: World) -> None:
    assert world.run("ls").out == 'no sessions yet; make one: rametctl new "what is to be done"\n'
    assert world.run("ls", "--json").out == "[]\n"


def test_ls_lists_the_repository_around_the_current_directory(world: World) -> None:
    world.run("ls")
    (world.cwd / ".git").mkdir()
    world.run("ls")
    world.run("ls", "--all")
    world.run("ls", "--repo", "shop", "--state", "archived")
    asked = world.state.called("ListSessions")
    assert [call.repo for call in asked] == ["", str(world.cwd), "", "shop"]
    assert [call.include_archived for call in asked] == [False, False, True, True]


def test_a_repository_without_sessions_is_an_empty_list_and_no_error(world: World) -> None:
    (world.cwd / ".git").mkdir()
    world.state.refusals["ListSessions"] = [Refusal("NOT_FOUND", "unknown", "REPO_NOT_FOUND")]
    result = world.run("ls")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("no sessions here")


def test_ls_reads_all_pages(world: World) -> None:
    for number in range(1003):
        world.state.session(f"s{number}")
    assert len(json.loads(world.run("ls", "--json").out)) == 1003
    assert len(world.state.called("ListSessions")) == 2


def test_show_tells_everything_with_the_command_that_answers(world: World) -> None:
    session = world.state.session("fix", budget_usd=3, owns=["src/**"])
    world.state.session("child", parent_id=session.id)
    world.state.request(session, tool="Bash", input_json='{"command": "make"}', reason="not in the rules")
    world.state.prompts.append(session_pb2.Prompt(text="and then the tests\nplease"))
    shown = world.run("show", "fix").out
    for part in (
        "- of $3.00",
        "src/**",
        "child       child idle",
        "pid 4711",
        "pending     and then the tests",
        "$ make",
    ):
        assert part in shown
    assert "→ rametctl approve 01beef00" in shown
    assert "why: not in the rules" in shown


def test_show_json_is_the_session_with_what_hangs_on_it(world: World) -> None:
    world.state.session("fix")
    shown = json.loads(world.run("show", "fix", "--json").out)
    assert shown["name"] == "fix"
    assert shown["process"]["pid"] == 4711
    assert (shown["open_requests"], shown["children"], shown["pending_prompts"]) == ([], [], [])


# Errors


def test_an_unknown_session_is_one_line_and_exit_3(world: World) -> None:
    result = world.run("stop", "nix")
    assert (result.code, result.out) == (3, "")
    assert result.err == "rametctl: there is no session 'nix'; see: rametctl ls --all\n"


def test_with_json_the_error_is_also_on_stdout(world: World) -> None:
    result = world.run("stop", "nix", "--json")
    assert json.loads(result.out)["error"]["reason"] == "SESSION_NOT_FOUND"
    assert len(lines(result.err)) == 1
    usage = world.run("stop", "--json")
    assert (usage.code, json.loads(usage.out)["error"]["reason"]) == (2, "USAGE")


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        ("INVALID_ARGUMENT", "BAD_NAME", 2),
        ("NOT_FOUND", "REF_NOT_FOUND", 3),
        ("FAILED_PRECONDITION", "WRONG_STATE", 1),
        ("UNAVAILABLE", "READ_ONLY", 1),
        ("PERMISSION_DENIED", "PERMISSION_DENIED", 1),
        ("INTERNAL", "", 1),
    ],
)
def test_a_refusal_becomes_a_line_and_an_exit_code(world: World, status: str, reason: str, code: int) -> None:
    world.state.session("fix")
    world.state.refusals["StopSession"] = [Refusal(status, "it is\nso", reason, hint="do that")]
    result = world.run("stop", "fix")
    assert result.code == code
    assert result.err == "rametctl: it is so" + ("; do that" if reason else "") + "\n"


def test_a_call_that_the_daemon_does_not_know_means_that_it_is_older(world: World) -> None:
    world.state.session("fix")
    world.state.refusals["PauseSession"] = [Refusal("UNIMPLEMENTED", "Method not found!")]
    result = world.run("pause", "fix")
    assert (result.code, result.err) == (
        1, "rametctl: the daemon is older than this rametctl; run: rametctl daemon restart\n",
    )  # fmt: skip


def test_while_the_daemon_recovers_the_call_is_made_again(world: World) -> None:
    world.state.refusals["ListSessions"] = [Refusal("UNAVAILABLE", "wait", "RECOVERING")] * 2
    assert world.run("ls").code == 0
    assert len(world.state.called("ListSessions")) == 3


def test_every_call_tells_the_contract_and_the_sessions_token(world: World) -> None:
    world.run("ls", env={"RAMET_TOKEN": "t0k3n"})
    world.run("ls")
    first, second = world.state.calls
    assert first.metadata == {"ramet-contract": "1", "ramet-token": "t0k3n"}
    assert second.metadata == {"ramet-contract": "1"}


def test_arguments_that_are_not_utf8_are_refused(world: World) -> None:
    result = world.run("new", "\udcff")
    assert (result.code, result.err) == (2, "rametctl: argument 2 is not UTF-8 text; pass it in a file: -f FILE\n")


def test_without_arguments_there_is_help_and_exit_2(world: World) -> None:
    result = world.run()
    assert (result.code, result.out) == (2, "")
    assert "rametctl new" in result.err


# Doing something to a session


@pytest.mark.parametrize(
    ("verb", "method"),
    [
        ("interrupt", "InterruptSession"),
        ("stop", "StopSession"),
        ("resume", "ResumeSession"),
        ("pause", "PauseSession"),
    ],
)
def test_a_verb_on_a_session_calls_its_method_once(world: World, verb: str, method: str) -> None:
    session = world.state.session("fix", turns=1, cost_usd=0.5)
    assert lines(world.run(verb, "fix").out)[0] == "fix is idle, 1 turn, $0.50"
    (sent,) = world.state.called(method)
    assert (sent.session, bool(sent.request_id)) == (session.id, True)
    assert json.loads(world.run(verb, "fix", "--json").out)["id"] == session.id


def test_what_had_nothing_to_do_says_so(world: World) -> None:
    world.state.session("rests")
    world.state.session("held", state=session_pb2.SESSION_STATE_PAUSED)
    world.state.idle_interrupts = True
    assert lines(world.run("interrupt", "rests").out)[1:] == ["there was no turn to interrupt"]
    assert lines(world.run("resume", "rests").out)[1:] == [
        "there was nothing to resume: it was not paused, lost or failed"
    ]
    assert lines(world.run("resume", "held").out)[1:] == []


def test_send_says_it(world: World) -> None:
    session = world.state.session("fix")
    assert world.run("send", "fix", "- and then").out == "fix is working, 0 turns\n"
    assert world.run("send", "fix", "-", stdin=b"from a pipe").code == 0
    (prompt_file := world.cwd / "p.md").write_text("from a file")
    assert json.loads(world.run("send", "fix", "-f", str(prompt_file), "--json").out)["prompt"]["state"] == "queued"
    sent = world.state.called("SendPrompt")
    assert [call.prompt for call in sent] == ["- and then", "from a pipe", "from a file"]
    assert {call.session for call in sent} == {session.id}


def test_send_without_a_prompt_is_wrong_usage(world: World) -> None:
    world.state.session("fix")
    assert world.run("send", "fix").code == 2
    assert world.state.called("SendPrompt") == []


def test_send_wait_waits(world: World) -> None:
    session = world.state.session("fix")
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE, sessions=[session])
    result = world.run("send", "fix", "x", "--wait", "--json")
    assert (result.code, list(json.loads(result.out))) == (0, ["prompt", "session"])
    assert list(world.state.called("WaitSessions")[0].sessions) == [session.id]


def test_set_changes_what_is_named_and_nothing_else(world: World) -> None:
    world.state.session("fix", budget_usd=3, priority=2)
    result = world.run("set", "fix", "--mode", "plan", "--model", "", "--budget", "none")
    assert (result.code, result.out) == (0, "fix: the agent's default model, mode plan, no budget\n")
    (sent,) = world.state.called("UpdateSession")
    assert list(sent.update_mask.paths) == ["model", "mode", "budget_usd"]
    assert (sent.session.mode, sent.session.HasField("budget_usd")) == (common_pb2.PERMISSION_MODE_PLAN, False)
    assert world.run("set", "fix").code == 2
    nothing = world.run("set", "fix", "--budget", "0")
    assert nothing.code == 2, "a limit of nothing must not take the limit away"
    more = world.run("set", "fix", "--budget", "8", "--name", "login", "--priority", "-1", "--mode", "acceptEdits")
    assert more.out == "fix: mode acceptEdits, budget $8.00, name login, priority -1\n"
    assert "claude, acceptEdits mode" in world.run("show", "login").out


# wait


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
    assert list(json.loads(result.out)) == ["outcome", "sessions", "open_requests"]
    assert bool(result.err) == bool(code)
    (sent,) = world.state.called("WaitSessions")
    assert (sent.timeout.seconds, sent.condition) == (60, session_pb2.WAIT_CONDITION_IDLE)


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


# Attention


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


def test_deny_tells_why(world: World) -> None:
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


# diff, rm, repo


def test_a_piped_diff_is_the_patch_byte_for_byte(world: World) -> None:
    world.state.session("fix")
    world.state.diff = worktree_pb2.GetDiffResponse(patch=b"+caf\xc3\xa9\r\n+\x1b[31m\n", truncated=True)
    result = world.run("diff", "fix", "--against", "main")
    assert result.out.encode() == b"+caf\xc3\xa9\r\n+\x1b[31m\n"
    assert "was cut" in result.err
    assert world.state.called("GetDiff")[0].against == "main"


def test_diff_stat_and_names_need_no_patch(world: World) -> None:
    world.state.session("fix")
    world.state.diff.files.add(path="a.py", kind=worktree_pb2.CHANGE_KIND_MODIFIED, additions=1)
    world.state.diff.additions = 1
    assert world.run("diff", "fix", "--name-only").out == "a.py\n"
    assert lines(world.run("diff", "fix", "--stat").out)[0] == "a.py | 1 +"
    assert json.loads(world.run("diff", "fix", "--json").out)["files"][0]["kind"] == "modified"
    assert [call.stat_only for call in world.state.called("GetDiff")] == [True, True, False]


def test_rm_that_would_lose_work_lists_it(world: World) -> None:
    world.state.session("fix")
    world.state.refusals["DeleteSession"] = [
        Refusal("FAILED_PRECONDITION", "it holds work", "WORK_AT_RISK", "--force keeps it", {"untracked": "a.py\nb.py"})
    ]
    result = world.run("rm", "fix")
    assert result.code == 1
    assert lines(result.err) == ["  untracked: a.py", "  untracked: b.py", "rametctl: it holds work; --force keeps it"]


def test_rm_tells_what_was_kept_and_how_it_comes_back(world: World) -> None:
    world.state.session("fix")
    world.state.trash_ref = "refs/ramet/trash/fix-1"
    assert lines(world.run("rm", "fix", "--force").out) == [
        "removed fix",
        "to bring it back, until 2023-11-15 22:13:20: rametctl trash restore fix",
    ]
    assert world.state.called("DeleteSession")[0].force


def test_rm_of_several_removes_what_it_can_and_leaves_with_the_first_failure(world: World) -> None:
    for name in ("a", "b", "c"):
        world.state.session(name)
    world.state.refusals["DeleteSession"] = [Refusal("FAILED_PRECONDITION", "a is working", "WRONG_STATE", "stop it")]
    result = world.run("rm", "a", "nix", "b", "b")
    assert (result.code, result.out) == (1, "removed b\n")
    assert lines(result.err) == [
        "rametctl: a: a is working; stop it",
        "rametctl: nix: there is no session 'nix'; see: rametctl ls --all",
    ]
    shown = world.run("rm", "nix", "c", "--json")
    failed, removed = json.loads(shown.out)
    assert (shown.code, failed["error"]["reason"], removed["session"]["name"]) == (3, "SESSION_NOT_FOUND", "c")


def test_what_is_no_repository_is_told_with_what_the_verb_takes(world: World) -> None:
    for method, args, hint in (
        ("RegisterRepo", ["repo", "add"], "give the path of one: rametctl repo add PATH"),
        ("GetRepo", ["repo", "show"], "name one; see: rametctl repo ls"),
    ):
        refusal = Refusal("NOT_FOUND", "no git repository around /", "REPO_NOT_FOUND", "or name one with --repo")
        world.state.refusals[method] = [refusal]
        result = world.run(*args)
        assert (result.code, result.err) == (3, f"rametctl: no git repository around /; {hint}\n")


def test_repositories_are_added_shown_trusted_and_forgotten(world: World) -> None:
    assert "trusted        no" in world.run("repo", "add").out
    assert world.state.called("RegisterRepo")[0].path == str(world.cwd)
    refused = world.run("repo", "trust")
    assert (refused.code, "add --yes" in refused.err, world.state.called("UpdateRepo")) == (2, True, [])
    assert json.loads(world.run("repo", "trust", "--yes", "--json").out)["trusted"] is True
    assert json.loads(world.run("repo", "trust", "cwd", "--no", "--json").out)["trusted"] is False
    assert lines(world.run("repo", "ls").out)[1].split()[:3] == ["cwd", "0", "no"]
    assert json.loads(world.run("repo", "show", "--json").out)["root"] == str(world.cwd)
    assert world.run("repo", "rm", "cwd").out == f"forgot cwd; {world.cwd} is as it was\n"


# log


def log_world(world: World, count: int) -> None:
    session = world.state.session("fix")
    for number in range(count):
        world.state.event(session, warning=event_pb2.Warning(message=f"w{number}"), frame=f'{{"n":{number}}}'.encode())


def test_log_has_a_line_for_each_event(world: World) -> None:
    log_world(world, 450)
    shown = lines(world.run("log", "fix").out)
    assert len(shown) == 450
    assert shown[0] == "2023-11-14 22:13:21  warning            warning: w0"
    assert len(lines(world.run("log", "fix", "-n", "3").out)) == 3
    assert lines(world.run("log", "fix", "-n", "300").out) == shown[-300:]


def test_log_spares_people_the_agents_protocol(world: World) -> None:
    log_world(world, 3)
    session = world.state.sessions["00000001-aaaa"]
    for _ in range(250):
        world.state.event(session, control_line=event_pb2.ControlLine(type="control_request"), frame=b"{}")
        world.state.event(session, agent_notice=event_pb2.AgentNotice(type="system"), frame=b"{}")
    assert [text.split()[-1] for text in lines(world.run("log", "fix").out)] == ["w0", "w1", "w2"]
    assert [text.split()[-1] for text in lines(world.run("log", "fix", "-n", "2").out)] == ["w1", "w2"]
    assert len(json.loads(world.run("log", "fix", "--json").out)) == 503
    assert len(lines(world.run("log", "fix", "--raw").out)) == 503


def test_log_raw_is_what_the_agent_wrote(world: World) -> None:
    log_world(world, 2)
    world.state.event(world.state.sessions["00000001-aaaa"], warning=event_pb2.Warning(message="no frame"))
    assert world.run("log", "fix", "--raw").out == '{"n":0}\n{"n":1}\n'


def test_log_json_is_one_array_of_events(world: World) -> None:
    log_world(world, 2)
    shown = json.loads(world.run("log", "fix", "--json", "--audit").out)
    assert [(event["payload"], event["warning"]["message"]) for event in shown] == [
        ("warning", "w0"),
        ("warning", "w1"),
    ]
    assert world.state.called("ListEvents")[0].audit


# The daemon, configuration, version, completion


def test_daemon_status_has_the_documented_fields(world: World) -> None:
    world.state.session("fix")
    shown = json.loads(world.run("daemon", "status", "--json").out)
    assert {"pid", "version", "instance_id", "socket", "state_dir", "serving", "sessions", "agents_alive"} <= set(shown)
    assert (shown["serving"], shown["sessions"], shown["agents_alive"]) == (True, 1, 1)
    assert "1 (1 idle)" in world.run("daemon", "status").out


def test_config_show_tells_where_a_value_comes_from(world: World) -> None:
    world.state.settings.append(
        daemon_pb2.Setting(key="max_working", value_json="8", origin="default", description="how many")
    )
    assert lines(world.run("config", "show").out)[1].split() == ["max_working", "8", "default", "how", "many"]
    assert json.loads(world.run("config", "show", "--json").out)["settings"][0]["value"] == 8


def test_config_check_finds_a_broken_file_without_a_daemon(world: World) -> None:
    file = world.home / "config" / "ramet" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("max_working = \n")
    result = world.run("config", "check")
    assert result.code == 1
    assert result.err == f"rametctl: {file}:1: not TOML: Invalid value (at line 1, column 15)\n"
    file.write_text("max_working = 3\n")
    assert world.run("config", "check").out == f"{file} is right\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"max_wroking = 3\n", "1: max_wroking: there is no such setting; did you mean max_working?"),
        (b"\nmax_working = true\n", "2: max_working: expected "),
        (b"budget = 3\n", "1: budget: expected a table, found 3"),
        (b"# caf\xe9\n", " is not UTF-8 text (byte 5); save it as UTF-8"),
    ],
)
def test_config_check_tells_every_kind_of_problem_and_needs_no_daemon(world: World, text: bytes, said: str) -> None:
    world.daemon.stop()
    file = world.home / "config" / "ramet" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    result = world.run("config", "check")
    assert (result.code, result.out, len(lines(result.err))) == (1, "", 1)
    assert result.err.removeprefix(f"rametctl: {file}").removeprefix(":").startswith(said)
    assert json.loads(world.run("config", "check", "--json").out)["error"]["reason"] == "BAD_CONFIG"


def test_config_check_lists_what_is_wrong_in_both_files(world: World) -> None:
    world.daemon.stop()
    (world.cwd / ".git").mkdir()
    (world.cwd / "below").mkdir()
    theirs = world.cwd / ".ramet.toml"
    theirs.write_text("max_working = 1\nsetup = 3\n")
    for args in ([], ["--repo", "below"]):
        result = world.run("config", "check", *args)
        assert result.code == 1
        assert [text.startswith(f"  {theirs}:") for text in lines(result.err)] == [True, True, False]
        assert lines(result.err)[-1].startswith("rametctl: 2 things are wrong")


def test_version_tells_both(world: World) -> None:
    assert [text.split()[0] for text in lines(world.run("version").out)] == ["rametctl", "rametd"]
    world.daemon.stop()
    assert lines(world.run("version").out)[1] == "no daemon is running"
    assert json.loads(world.run("version", "--json").out)["daemon"] is None


@pytest.mark.parametrize("shell", ["zsh", "fish", "bash"])
def test_completion_is_a_script_for_the_shell(world: World, shell: str) -> None:
    result = world.run("completion", shell)
    assert result.code == 0
    assert "_RAMETCTL_COMPLETE" in result.out


def test_session_names_are_completed_from_a_daemon_that_runs_and_none_is_started(world: World) -> None:
    world.state.session("fix-login")
    world.state.session("docs")
    complete = {"_RAMETCTL_COMPLETE": "fish_complete", "COMP_WORDS": "rametctl stop fi", "COMP_CWORD": "fi"}
    assert world.run(env=complete).out == "plain,fix-login\n"
    world.daemon.stop()
    assert world.run(env={**complete, "RAMET_AUTOSTART": "1"}).out.strip() == ""
    assert not world.daemon.socket.exists()


def test_the_service_installs_without_a_daemon(world: World) -> None:
    result = world.run("service", "status")
    assert result.code == 1
    assert "not installed" in result.out
