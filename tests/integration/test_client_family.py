"""The verbs for families, rules, answers and costs, with a fake daemon."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ramet.v1 import attention_pb2, common_pb2, daemon_pb2, event_pb2, orchestration_pb2, session_pb2

from tests.support.client import World
from tests.support.client import world as make_world
from tests.support.fake_state import BEGAN, Refusal

Kind = attention_pb2.AttentionKind
TOKEN = {"RAMET_TOKEN": "t0k3n", "RAMET_SESSION": "s"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with make_world(tmp_path) as made:
        yield made


def lines(text: str) -> list[str]:
    return text.splitlines()


# Messages


def test_msg_is_another_name_of_send(world: World) -> None:
    world.state.session("parser")
    (world.cwd / "m.txt").write_text("from a file")
    assert world.run("msg", "parser", "- look at it").code == 0
    assert world.run("msg", "parser", "-", stdin=b"from a pipe").code == 0
    assert world.run("msg", "parser", "-f", "m.txt", "--json").code == 0
    sent = world.state.called("SendPrompt")
    assert [call.prompt for call in sent] == ["- look at it", "from a pipe", "from a file"]
    assert world.run("msg", "parser").code == 2
    assert len(world.state.called("SendPrompt")) == 3


def test_messages_show_sender_receiver_state_time_and_text(world: World) -> None:
    world.state.session("parser")
    message = orchestration_pb2.Message(
        from_name="lead", to_name="parser", text="one\ntwo\x1b[2K", state=orchestration_pb2.MESSAGE_STATE_RECEIVED
    )
    message.create_time.seconds = BEGAN
    assert world.run("messages", "parser").out == "no messages\n"
    world.state.messages.append(message)
    assert lines(world.run("messages", "parser").out) == [
        "lead → parser  received  2023-11-14 22:13:20", "  one", "  two␛[2K",
    ]  # fmt: skip
    assert [each["state"] for each in json.loads(world.run("messages", "parser", "--json").out)] == ["received"]


def test_whose_messages_is_said_by_the_person_and_never_by_a_session(world: World) -> None:
    world.state.session("parser")
    assert world.run("messages").code == 2
    assert world.run("messages", "parser", env=TOKEN).code == 2
    assert world.run("messages", env=TOKEN).code == 0
    assert [call.session for call in world.state.called("ReadMessages")] == [""]


# Rules


def test_rules_are_listed_with_where_they_hold_and_come_from(world: World) -> None:
    session = world.state.session("fix")
    assert world.run("rules").out.startswith("no rules; to add one: rametctl approve REQUEST --always")
    world.state.rule("Bash(make:*)", request_id="r9", matches=3)
    world.state.rule("Edit(db/**)", session_id=session.id, effect=attention_pb2.RULE_EFFECT_DENY)
    ways: list[tuple[str, ...]] = [("rules",), ("rules", "ls")]
    for args in ways:
        header, first, second = lines(world.run(*args).out)
        assert header.split() == ["ID", "EFFECT", "RULE", "HOLDS", "IN", "FROM", "MATCHES", "LAST"]
        assert first.split() == ["rule1", "allow", "Bash(make:*)", "shop", "owner", "3", "-"]
        assert second.split() == ["rule2", "deny", "Edit(db/**)", "session", "fix", "owner", "0", "-"]
        assert [rule["effect"] for rule in json.loads(world.run(*args, "--json").out)] == ["allow", "deny"]


def test_rules_are_those_of_the_repository_around_the_current_directory(world: World) -> None:
    world.run("rules")
    world.run("rules", "ls", "--repo", "shop")
    for part in ("objects", "refs"):
        (world.cwd / ".git" / part).mkdir(parents=True)
    (world.cwd / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    world.run("rules")
    assert [call.repo for call in world.state.called("ListRules")] == ["", "shop", str(world.cwd)]
    world.state.refusals["ListRules"] = [Refusal("NOT_FOUND", "unknown", "REPO_NOT_FOUND")]
    assert world.run("rules", "--json").out == "[]\n"


def test_rules_are_created(world: World) -> None:
    session = world.state.session("fix")
    assert world.run("rules", "add", "Bash(make:*)").out == "rule1: allow Bash(make:*) in shop\n"
    assert (
        json.loads(world.run("rules", "add", "WebFetch", "--deny", "--session", "fix", "--json").out)["effect"]
        == "deny"
    )
    text = "rule3: allow Bash(npm test) in shop, codex only\n"
    assert world.run("rules", "add", "Bash(npm test)", "--agent", "codex").out == text
    assert world.run("rules", "add", "X", "--ask", "--deny").code == 2
    for_repo, for_session, for_agent = world.state.called("CreateRule")
    assert (for_repo.repo, for_repo.session, for_repo.effect) == (str(world.cwd), "", attention_pb2.RULE_EFFECT_ALLOW)
    assert (for_session.repo, for_session.session) == ("", session.name)
    assert (for_repo.agent, for_agent.agent) == ("", "codex")


def test_rules_are_removed_by_id_or_unique_prefix(world: World) -> None:
    for name in ("aa", "ab", "b"):
        world.state.rule("Bash(x)", id=name)
    assert world.run("rules", "rm", "a").code == 2, "it fits two"
    unknown = world.run("rules", "rm", "b", "nix", "--json")
    assert (unknown.code, json.loads(unknown.out)["error"]["reason"]) == (3, "RULE_NOT_FOUND")
    assert world.state.called("DeleteRule") == [], "all are found before one is removed"
    assert len(lines(world.run("rules", "rm", "aa", "b", "b").out)) == 2
    assert set(world.state.rules) == {"ab"}


# Answers


def test_approve_always_prints_the_rule_and_how_it_is_taken_back(world: World) -> None:
    world.state.request(world.state.session("fix"), tool="Bash", input_json="{}")
    assert lines(world.run("approve", "fix", "--always").out) == [
        "fix  permission: Bash  approved by owner",
        "  from now on: allow Bash(make:*) in shop",
        "  to take it back: rametctl rules rm rule1",
    ]
    assert json.loads(world.run("approve", "fix", "--always", "--json").out)["rule"]["id"] == "rule2"
    assert json.loads(world.run("approve", "fix", "--json").out)["rule"] is None
    assert world.run("approve", "fix", "--always", "--session").code == 2


SCHEMA = {
    "type": "object",
    "required": ["region"],
    "properties": {
        "region": {"type": "string", "enum": ["eu", "us"]},
        "replicas": {"type": "integer", "description": "how many"},
        "dry": {"type": "boolean"},
        "tags": {"type": "array"},
    },
}


def elicit(world: World) -> None:
    asked = {"mcp_server_name": "deploy", "message": "Where to?", "requested_schema": SCHEMA}
    world.state.request(
        world.state.session("fix"), kind=Kind.ATTENTION_KIND_ELICITATION, tool="deploy", input_json=json.dumps(asked)
    )


@pytest.mark.parametrize(
    ("args", "content"),
    [
        (
            ["region=eu", "replicas=3", "dry=yes", "tags=a, b"],
            {"region": "eu", "replicas": 3, "dry": True, "tags": ["a", "b"]},
        ),
        (['{"region": "us", "replicas": 1}'], {"region": "us", "replicas": 1}),
    ],
)
def test_an_elicitation_is_filled_in(world: World, args: list[str], content: object) -> None:
    elicit(world)
    assert world.run("answer", "fix", *args).out.endswith("approved by owner\n")
    (sent,) = world.state.called("ResolveRequest")
    assert json.loads(sent.resolution.approve.updated_input_json) == content


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["region=eu", "replicas=many"], "replicas cannot be 'many'"),
        (["region=mars"], "region cannot be 'mars'"),
        (["region=eu", "dry=maybe"], "dry cannot be 'maybe'"),
        (["replicas=1"], "region is missing"),
        (["region=eu", "colour=red"], "unknown field: colour"),
        (["eu"], "'eu' is not FIELD=VALUE"),
        (['{"region": '], "the answer is not JSON"),
    ],
)
def test_what_does_not_fit_an_elicitation_is_refused_before_it_is_sent(
    world: World, args: list[str], complaint: str
) -> None:
    elicit(world)
    result = world.run("answer", "fix", *args)
    assert result.code == 2
    assert complaint in result.err
    assert world.state.called("ResolveRequest") == []


def test_an_elicitation_is_shown_with_its_fields(world: World) -> None:
    elicit(world)
    shown = world.run("inbox").out
    assert "    region: eu | us\n" in shown
    assert "    replicas: integer, may be left out  how many\n" in shown
    assert "→ rametctl answer 01beef00 region=VALUE replicas=VALUE" in shown
    assert "or: rametctl deny 01beef00\n" in shown


# The inbox


def test_the_inbox_has_what_blocks_work_first(world: World) -> None:
    session = world.state.session("fix")
    for kind in ("REVIEW", "PERMISSION", "REVIEW", "PLAN"):
        world.state.request(session, kind=Kind.Value(f"ATTENTION_KIND_{kind}"), reason="All done.", input_json="{}")
    shown = lines(world.run("inbox").out)
    heads = [text.split()[0] for text in shown if text.startswith("0")]
    assert heads == ["02beef00", "04beef00", "01beef00", "03beef00"]
    assert shown[0] == "waits for your answer: 2 requests"
    assert shown.count("to look at: 2 finished turns") == 1
    assert [each["kind"] for each in json.loads(world.run("inbox", "--json").out)] == [
        "permission", "plan", "review", "review",
    ]  # fmt: skip


def test_a_review_shows_the_summary_and_both_answers(world: World) -> None:
    world.state.request(
        world.state.session("fix"), kind=Kind.ATTENTION_KIND_REVIEW, reason="All done.", input_json="{}"
    )
    shown = lines(world.run("inbox").out)
    assert "  All done." in shown
    assert shown[-2:] == [
        "  → rametctl done fix   or: rametctl deny 01beef00 -m WHAT-TO-DO-BETTER",
        "    see: rametctl diff fix",
    ]


def test_a_plan_that_was_not_written_says_where_to_look(world: World) -> None:
    world.state.request(world.state.session("fix"), kind=Kind.ATTENTION_KIND_PLAN, input_json="{}")
    assert "  it has written no plan; what it said: rametctl logs fix" in lines(world.run("inbox").out)


# Costs


def test_costs_are_summed_with_a_total(world: World) -> None:
    assert world.run("cost").out == "no costs yet\n"
    tokens = common_pb2.Tokens(input=1200, output=30)
    world.state.costs = daemon_pb2.GetCostsResponse(
        costs=[daemon_pb2.Cost(key=key, cost_usd=1.5, tokens=tokens) for key in ("a", "b")], total_usd=3
    )
    shown = [text.split() for text in lines(world.run("cost", "--by", "day").out)]
    assert shown[0] == ["DAY", "COST", "INPUT", "OUTPUT", "CACHE", "READ", "CACHE", "WRITTEN"]
    assert shown[1] == ["a", "$1.50", "1,200", "30", "0", "0"]
    assert shown[-1] == ["total", "$3.00", "2,400", "60", "0", "0"]
    assert [each["key"] for each in json.loads(world.run("cost", "--by", "model", "--json").out)] == ["a", "b"]
    assert [call.grouping for call in world.state.called("GetCosts")] == [
        daemon_pb2.COST_GROUPING_SESSION, daemon_pb2.COST_GROUPING_DAY, daemon_pb2.COST_GROUPING_MODEL,
    ]  # fmt: skip


# Several at once, families


def test_new_count_creates_a_contest_with_one_call(world: World) -> None:
    shown = json.loads(world.run("new", "try", "--name", "idea", "--branch", "b", "--count", "3", "--json").out)
    assert [session["name"] for session in shown] == ["idea-1", "idea-2", "idea-3"]
    (sent,) = world.state.called("CreateSession")
    assert (sent.branch, sent.contenders) == ("b", ["", "", ""])
    assert world.run("new", "x", "--count", "0").code == 2
    assert lines(world.run("new", "try", "--name", "more", "--count", "2").out)[-1] == (
        "To compare them: rametctl compare more"
    )


def test_new_count_wait_waits_for_all(world: World) -> None:
    world.state.wait = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_DONE)
    result = world.run("new", "try", "--count", "2", "--wait", "--json")
    assert (result.code, len(json.loads(result.out))) == (0, 2)
    assert len(world.state.called("WaitSessions")[0].sessions) == 2


def family(world: World) -> session_pb2.Session:
    """lead → (worker → helper, rested); and a stranger."""
    lead = world.state.session("lead", budget_usd=10, cost_usd=1, result="All done.\nSee a.py.")
    worker = world.state.session(
        "worker", parent_id=lead.id, state=session_pb2.SESSION_STATE_WORKING, budget_usd=3, cost_usd=0.5
    )
    world.state.session("helper", parent_id=worker.id, agent_alive=True)
    world.state.session("rested", parent_id=lead.id, cost_usd=0.25)
    world.state.session("stranger", state=session_pb2.SESSION_STATE_WORKING)
    return lead


def test_ls_tree_indents_families(world: World) -> None:
    family(world)
    names = [
        text.split("  idle")[0].split("  working")[0].rstrip() for text in lines(world.run("ls", "--tree").out)[1:]
    ]
    assert names == ["lead", "└ worker", "  └ helper", "└ rested", "stranger"]


def test_show_has_the_family_and_the_remaining_budget(world: World) -> None:
    family(world)
    shown = lines(world.run("show", "lead").out)
    assert "cost        $1.00 of $10.00, $0.75 by its descendants, $8.25 left" in shown
    assert "child       worker working" in shown
    assert shown[-2:] == ["result      All done.", "            See a.py."]
    assert "parent      lead" in lines(world.run("show", "worker").out)
    world.state.session("orphan", parent_id="gone0000")
    assert "parent      gone0000 (gone)" in lines(world.run("show", "orphan").out)


def test_stop_names_descendants_that_keep_running(world: World) -> None:
    lead = family(world)
    result = world.run("stop", "lead")
    assert lines(result.out)[0] == "lead is stopped, 0 turns, $1.00"
    assert result.err == "rametctl: worker, helper of its family keep running; --descendants stops them too\n"
    assert [call.session for call in world.state.called("StopSession")] == [lead.id]
    alone = world.run("stop", "lead", "--alone", "--json")
    assert (alone.err, json.loads(alone.out)["descendants"]) == ("", [])
    assert world.run("stop", "lead", "--alone", "--descendants").code == 2


def test_stop_descendants_begins_at_the_top(world: World) -> None:
    family(world)
    shown = json.loads(world.run("stop", "lead", "--descendants", "--json").out)
    assert (shown["name"], [each["name"] for each in shown["descendants"]]) == ("lead", ["worker", "helper"])


def test_stop_asks_on_a_terminal(world: World) -> None:
    family(world)
    with world.terminal("stop", "lead") as terminal:
        terminal.shows("Stop its 2 descendants too (worker, helper)? [y/N]")
        terminal.type("y\n")
        assert terminal.ends() == 0
    assert len(world.state.called("StopSession")) == 3


def test_a_budget_of_none_is_no_budget(world: World) -> None:
    world.state.session("fix", budget_usd=3)
    assert world.run("set", "fix", "--budget", "none").code == 0
    (sent,) = world.state.called("UpdateSession")
    assert list(sent.update_mask.paths) == ["budget_usd", "budget_tokens"]
    assert not sent.session.HasField("budget_usd")
    assert not sent.session.HasField("budget_tokens")
    assert world.run("set", "fix", "--budget", "nothing").code == 2


def test_the_audit_says_who(world: World) -> None:
    session = world.state.session("fix")
    for principal in ("owner", f"session:{session.id}", "session:other", ""):
        world.state.event(session, warning=event_pb2.Warning(message="w")).principal = principal
    shown = [text.split()[2] for text in lines(world.run("log", "fix", "--audit").out)]
    assert shown == ["owner", "session:fix", "session:other", "daemon"]
