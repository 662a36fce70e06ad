"""Each verb with a fake daemon: its calls, its output, its exit codes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import attention_pb2, common_pb2, daemon_pb2, event_pb2, session_pb2, worktree_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.fake_state import Refusal


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def lines(text: str) -> list[str]:
    return text.splitlines()


def repository_here(world: World) -> None:
    for name in ("objects", "refs"):
        (world.cwd / ".git" / name).mkdir(parents=True)
    (world.cwd / ".git" / "HEAD").touch()


# ls and show


def test_ls_shows_what_needs_a_person(world: World) -> None:
    world.state.session("fix", state=session_pb2.SESSION_STATE_FAILED, state_reason="no disk", turns=2, cost_usd=0.126)
    result = world.run("ls")
    header, row = lines(result.out)
    assert header.split() == ["NAME", "STATE", "SINCE", "COST", "NOW"]
    assert row.split()[:4] == ["fix", "failed", "-", "$0.13"]
    assert row.endswith("no disk")
    assert "\x1b" not in result.out


def test_an_agent_other_than_the_default_one_is_named(world: World) -> None:
    world.state.session("fix")
    assert "AGENT" not in world.run("ls").out
    world.state.session("other", agent="pi", capabilities=["resume"])
    assert [line.split()[:2] for line in lines(world.run("ls").out)] == [
        ["NAME", "AGENT"],
        ["fix", "idle"],
        ["other", "pi"],
    ]
    assert "pi, default mode; it never asks, and its writes are checked afterwards" in world.run("show", "other").out
    assert "never asks" not in world.run("show", "fix").out


def test_ls_prints_names_alone_for_scripts(world: World) -> None:
    world.state.session("fix")
    world.state.session("docs")
    assert world.run("ls", "-q").out == "fix\ndocs\n"


def test_ls_counts_sessions_of_other_repositories(world: World) -> None:
    repository_here(world)
    world.state.session("fix")
    world.state.elsewhere = 18
    assert lines(world.run("ls", terminal=True).out)[-1].endswith("(18 in other repositories: --all)\x1b[0m")
    assert "--all" not in world.run("ls").out


def test_an_empty_list_says_how_to_begin(world: World) -> None:
    assert world.run("ls").out == "no sessions yet; create one: rametctl new PROMPT\n"
    assert world.run("ls", "--json").out == "[]\n"


def test_ls_lists_the_repository_around_the_current_directory(world: World) -> None:
    world.run("ls")
    repository_here(world)
    world.run("ls")
    world.run("ls", "--all")
    world.run("ls", "--repo", "shop", "--state", "archived")
    asked = world.state.called("ListSessions")
    assert [call.repo for call in asked] == ["", str(world.cwd), "", "shop"]
    assert [call.include_archived for call in asked] == [False, False, True, True]


def test_a_repository_without_sessions_is_an_empty_list_and_no_error(world: World) -> None:
    repository_here(world)
    world.state.refusals["ListSessions"] = [Refusal("NOT_FOUND", "unknown", "REPO_NOT_FOUND")]
    result = world.run("ls")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("no sessions here")


def test_ls_reads_all_pages(world: World) -> None:
    for number in range(1003):
        world.state.session(f"s{number}")
    assert len(json.loads(world.run("ls", "--json").out)) == 1003
    assert len(world.state.called("ListSessions")) == 2


def test_show_has_everything_with_the_command_that_answers(world: World) -> None:
    session = world.state.session("fix", budget_usd=3, owns=["src/**"])
    world.state.last_words = "the last words"
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
    assert "● the last words" in shown


def test_show_json_is_the_session_with_what_hangs_on_it(world: World) -> None:
    world.state.session("fix")
    shown = json.loads(world.run("show", "fix", "--json").out)
    assert shown["name"] == "fix"
    assert shown["process"]["pid"] == 4711
    assert (shown["open_requests"], shown["children"], shown["pending_prompts"]) == ([], [], [])


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_locale_is_too_small_for_what_is_shown(world: World, encoding: str) -> None:
    world.state.session("日本語")
    readers = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "PAGER": "cat"}
    for verb in (["ls"], ["show", "日本語"], ["stop", "nö…"]):
        with world.popen(*verb, env=readers, encoding=encoding) as process:
            out, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        assert process.returncode == (3 if verb[0] == "stop" else 0)
        assert ("日本語" if encoding == "utf-8" else "???") in out or verb[0] == "stop"
    with world.popen("ls", "--json", env=readers, encoding="utf-8") as process:
        assert json.loads(process.communicate(timeout=60)[0])[0]["name"] == "日本語"


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


def test_a_call_during_recovery_is_repeated(world: World) -> None:
    world.state.refusals["ListSessions"] = [Refusal("UNAVAILABLE", "wait", "RECOVERING")] * 2
    assert world.run("ls").code == 0
    assert len(world.state.called("ListSessions")) == 3


def test_every_call_carries_contract_directory_and_token(world: World) -> None:
    world.run("ls", env={"RAMET_TOKEN": "t0k3n"})
    world.run("ls")
    first, second = world.state.calls
    always = {"ramet-contract": "1", "ramet-directory-bin": bytes(world.cwd)}
    assert first.metadata == always | {"ramet-token": "t0k3n"}
    assert second.metadata == always


def test_arguments_that_are_not_utf8_are_refused(world: World) -> None:
    result = world.run("new", "\udcff")
    assert (result.code, result.err) == (2, "rametctl: argument 2 is not UTF-8 text; pass it in a file: -f FILE\n")


def test_without_arguments_there_is_help_and_exit_2(world: World) -> None:
    result = world.run()
    assert (result.code, result.out) == (2, "")
    assert "Start here" in result.err


# Changes of a session


@pytest.mark.parametrize(
    ("verb", "methods"),
    [
        ("interrupt", ["InterruptSession"]),
        ("stop", ["GetSession", "ListSessions", "StopSession"]),  # which looks for descendants
        ("resume", ["ResumeSession"]),
        ("pause", ["PauseSession"]),
    ],
)
def test_a_verb_on_a_session_calls_its_method_once(world: World, verb: str, methods: list[str]) -> None:
    session = world.state.session("fix", turns=1, cost_usd=0.5)
    state = "stopped" if verb == "stop" else "idle"
    assert lines(world.run(verb, "fix").out)[0] == f"fix is {state}, 1 turn, $0.50"
    assert [call.method for call in world.state.calls] == methods
    (sent,) = world.state.called(methods[-1])
    assert (sent.session in {"fix", session.id}, bool(sent.request_id)) == (True, True)
    assert json.loads(world.run(verb, "fix", "--json").out)["id"] == session.id


def test_a_withdrawn_prompt_is_printed_unchanged(world: World) -> None:
    world.state.session("fix")
    assert world.run("unsend", "fix").out == "text newest\n"
    assert json.loads(world.run("unsend", "fix", "--json").out)["withdrawn"][0]["text"] == "text newest"
    assert world.run("unsend", "fix", "2").code == 2  # it has none queued
    assert world.run("unsend", "fix", "2", "--all").code == 2


def test_what_had_nothing_to_do_says_so(world: World) -> None:
    world.state.session("rests")
    world.state.session("held", state=session_pb2.SESSION_STATE_PAUSED)
    world.state.idle_interrupts = True
    assert lines(world.run("interrupt", "rests").out)[1:] == ["there was no turn to interrupt"]
    world.state.session("begins", state=session_pb2.SESSION_STATE_STARTING)
    assert lines(world.run("interrupt", "begins").out)[1:] == [
        "there was no turn to interrupt yet: the session is starting; to end it before its turn: rametctl stop begins"
    ]
    assert lines(world.run("resume", "rests").out)[1:] == [
        "nothing to resume: the session was not paused, lost or failed"
    ]
    assert lines(world.run("resume", "held").out)[1:] == []


def test_send_says_it(world: World) -> None:
    session = world.state.session("fix")
    assert world.run("send", "fix", "- and then").out == "fix: sent; it reaches the running turn\n"
    assert world.run("send", "fix", "-", stdin=b"from a pipe").code == 0
    (prompt_file := world.cwd / "p.md").write_text("from a file")
    assert json.loads(world.run("send", "fix", "-f", str(prompt_file), "--json").out)["prompt"]["state"] == "sent"
    sent = world.state.called("SendPrompt")
    assert [call.prompt for call in sent] == ["- and then", "from a pipe", "from a file"]
    assert {call.session for call in sent} == {session.name}


def test_send_without_a_prompt_is_wrong_usage(world: World) -> None:
    world.state.session("fix")
    assert world.run("send", "fix").code == 2
    assert world.state.called("SendPrompt") == []


def test_send_wait_waits(world: World) -> None:
    session = world.state.session("fix")
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE, sessions=[session])
    result = world.run("send", "fix", "x", "--wait", "--json")
    assert (result.code, list(json.loads(result.out))) == (0, ["prompt", "session", "warnings"])
    assert list(world.state.called("WaitSessions")[0].sessions) == [session.id]


def test_set_changes_what_is_named_and_nothing_else(world: World) -> None:
    world.state.session("fix", budget_usd=3, priority=2)
    result = world.run("set", "fix", "--mode", "plan", "--model", "", "--budget", "none")
    assert (result.code, result.out) == (0, "fix: the agent's default model, mode plan, no budget\n")
    (sent,) = world.state.called("UpdateSession")
    assert list(sent.update_mask.paths) == ["model", "mode", "budget_usd", "budget_tokens"]
    assert (sent.session.mode, sent.session.HasField("budget_usd")) == (common_pb2.PERMISSION_MODE_PLAN, False)
    assert world.run("set", "fix").code == 2
    nothing = world.run("set", "fix", "--budget", "0")
    assert nothing.code == 2, "a limit of zero must not remove the limit"
    assert world.run("set", "fix", "--budget", "2M tok").out == "fix: budget 2M tokens\n"
    more = world.run("set", "fix", "--budget", "8", "--name", "login", "--priority", "-1", "--mode", "acceptEdits")
    assert more.out == "fix: mode acceptEdits, name login, priority -1, budget $8.00\n"
    assert "claude, acceptEdits mode" in world.run("show", "login").out


# diff, rm, repo


def test_a_piped_diff_is_the_patch_byte_for_byte(world: World) -> None:
    world.state.session("fix")
    world.state.diff = worktree_pb2.GetDiffResponse(patch=b"+caf\xc3\xa9\r\n+\x1b[31m\n")
    result = world.run("diff", "fix", "--against", "main")
    assert (result.code, result.err) == (0, "")
    assert result.out.encode() == b"+caf\xc3\xa9\r\n+\x1b[31m\n"
    (asked,) = world.state.called("GetDiff")
    assert (asked.against, asked.binary) == ("main", True)


def test_a_truncated_piped_patch_is_a_failure(world: World) -> None:
    """So that `rametctl diff S > x.patch && git apply x.patch` never applies a part."""
    world.state.session("fix")
    warning = "too large to be shown: huge.bin"
    world.state.diff = worktree_pb2.GetDiffResponse(patch=b"+part\n", truncated=True, warnings=[warning])
    result = world.run("diff", "fix")
    assert (result.code, result.out) == (1, "+part\n")
    assert lines(result.err) == [
        f"rametctl: warning: {warning}",
        "rametctl: the patch is incomplete: do not apply it; see the complete diff with git in: rametctl path fix",
    ]
    assert world.run("diff", "fix", "--json").code == 0, "a program reads `truncated`"


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


def test_rm_names_the_trash_and_how_to_restore(world: World) -> None:
    world.state.session("fix")
    world.state.trash_ref = "refs/ramet/trash/fix-1"
    assert lines(world.run("rm", "fix", "--force").out) == [
        "removed fix",
        "to restore it, until 2023-11-15 22:13:20: rametctl restore fix",
    ]
    assert world.state.called("DeleteSession")[0].force


def test_rm_of_several_removes_the_others_and_exits_with_the_first_failure(world: World) -> None:
    for name in ("a", "b", "c"):
        world.state.session(name)
    world.state.refusals["DeleteSession"] = [Refusal("FAILED_PRECONDITION", "a is working", "WRONG_STATE", "stop it")]
    result = world.run("rm", "a", "nix", "b", "b")
    assert (result.code, result.out) == (1, "removed b\n")
    assert lines(result.err) == [
        "rametctl: a is working; stop it",
        "rametctl: there is no session 'nix'; see: rametctl ls --all",
    ]
    shown = world.run("rm", "nix", "c", "--json")
    failed, removed = json.loads(shown.out)
    assert (shown.code, failed["error"]["reason"], removed["session"]["name"]) == (3, "SESSION_NOT_FOUND", "c")


def test_an_error_for_no_repository_names_the_arguments(world: World) -> None:
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
    assert world.run("repo", "rm", "cwd").out == f"removed cwd from Ramet; {world.cwd} is unchanged\n"


def test_path_prints_the_worktree_alone(world: World) -> None:
    world.state.session("fix")
    assert world.run("path", "fix").out == "/trees/1\n"


def test_status_counts_sessions_by_what_they_need(world: World) -> None:
    for number, state in enumerate(("WAITING", "FAILED", "WORKING", "IDLE")):
        world.state.session(f"s{number}", state=session_pb2.SessionState.Value(f"SESSION_STATE_{state}"))
    assert world.run("status", "--short").out == "2⚠ 1▶ 1✓\n"
    assert world.run("status").out == "2 need you, 1 working, 1 other\n"


@pytest.mark.parametrize(
    ("kind", "counted"),
    [("LANDING", "1⚠"), ("CONFLICT", "1⚠"), ("TROUBLE", "1⚠"), ("OWNERSHIP", "1⚠"), ("REVIEW", "1✓")],
)
def test_status_counts_a_request_of_an_idle_session_as_the_inbox_does(world: World, kind: str, counted: str) -> None:
    world.state.request(world.state.session("fix"), kind=attention_pb2.AttentionKind.Value(f"ATTENTION_KIND_{kind}"))
    assert world.run("status", "--short").out == f"{counted}\n"


def test_an_option_without_its_argument_names_the_help_of_its_verb(world: World) -> None:
    for verb, option in (("land", "--commit"), ("send", "--file"), ("rules add", "--session")):
        refused = world.run(*verb.split(), "fix", option)
        assert (refused.code, f"see: rametctl {verb} --help" in refused.err) == (2, True), refused.err


@pytest.mark.parametrize("verb", [(), ("top",)])
def test_the_dashboard_says_that_a_dumb_terminal_cannot_show_it(world: World, verb: tuple[str, ...]) -> None:
    refused = world.run(*verb, env={"TERM": "dumb"}, terminal=True)
    why = "rametctl: the dashboard needs a terminal that can move the cursor; use: rametctl ls\n"
    assert (refused.code, refused.out, refused.err) == (2, "", why)


def test_lists_and_reviews_show_bold_text_without_its_marks(world: World) -> None:
    said = "**All done**: moved a/**/x, b/**/x **twice**"
    shown = "All done: moved a/**/x, b/**/x twice"
    session = world.state.session("fix", now=said)
    assert shown in world.run("ls").out
    assert json.loads(world.run("ls", "--json").out)[0]["now"] == said
    world.state.request(session, kind=attention_pb2.ATTENTION_KIND_REVIEW, reason=said)
    assert shown in world.run("inbox").out
    assert f"done: {shown}" in world.run("inbox", terminal=True, env={"NO_COLOR": "1"}).out


# agents


def test_agents_lists_installed_agents_and_how_to_install_others(world: World) -> None:
    kind = daemon_pb2.KindOfAgent
    world.state.agents = {
        "claude": kind(name="claude", installed=True, version="2.1.332", logged_in=True, tried=True),
        "codex": kind(name="codex", installed=True, version="2.6.0", logged_in=False, login_command="codex login", tried=True),
        "qwen": kind(name="qwen", installed=True, version="0.15", problem="0.15 is older than 0.24, which Ramet needs", install_command="npm install -g qwen"),
        "goose": kind(name="goose", install_command="see its page", problem="there is no goose on the PATH"),
        "copilot": kind(name="copilot", installed=True),
    }  # fmt: skip
    listed = world.run("agents")
    assert [line.split(maxsplit=2) for line in lines(listed.out)[1:]] == [
        ["claude", "2.1.332", "works"],
        ["codex", "2.6.0", "not logged in                               codex login"],
        ["qwen", "0.15", "0.15 is older than 0.24, which Ramet needs  npm install -g qwen"],
        ["goose", "-", "not installed                               see its page"],
        ["copilot", "-", "installed                                   not tried with Ramet yet"],
    ]
    assert [call.inspect for call in world.state.called("ListAgents")] == [True]
    assert world.run("agents", "check").code == 0, "one works"
    assert world.run("agents", "check", "claude").code == 0
    assert world.run("agents", "check", "claude", "codex").code == 1, "all named ones must work"
    assert json.loads(world.run("agents", "ls", "--json").out)[1]["logged_in"] is False


def test_a_kind_of_agent_is_shown_with_what_it_cannot(world: World) -> None:
    modes = [common_pb2.PERMISSION_MODE_PLAN]
    world.state.agents["codex"] = daemon_pb2.KindOfAgent(
        name="codex", title="Codex", command=["codex-acp"], modes=modes, capabilities=["ask", "tokens"], faults=["It is slow."]
    )  # fmt: skip
    shown = world.run("agents", "show", "codex").out
    assert "can       asks before a call, tells tokens" in shown
    assert "cannot    resumes, forks" in shown
    assert "modes     plan" in shown
    assert "note      It is slow." in shown


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        (["logs", "fix", "--json"], ["ListEvents"]),
        (["logs", "fix"], ["GetSession", "ListEvents"]),
        (["events", "fix"], ["ListEvents"]),
        (["show", "fix", "--json"], ["GetSession"]),
        (["show", "fix"], ["GetSession"]),
        (["show", "child"], ["GetSession"]),
        (["diff", "fix"], ["GetDiff"]),
    ],
)
def test_a_verb_that_reads_makes_no_call_that_it_does_not_need(
    world: World, words: list[str], calls: list[str]
) -> None:
    fix = world.state.session("fix", budget_usd=1)
    world.state.session("child", parent_id=fix.id)
    world.state.event(fix, warning=event_pb2.Warning(message="one"))
    assert world.run(*words).code == 0
    assert [call.method for call in world.state.calls] == calls
