"""Rendering of sessions, requests and events."""

import json
import re

import pytest
from ramet.mcp import SERVER
from ramet.v1 import attention_pb2, common_pb2, event_pb2, landing_pb2, session_pb2, worktree_pb2
from rametctl.commands.answer import chosen_answer
from rametctl.commands.run import argv_of
from rametctl.connection.follow import parse_cursor
from rametctl.console.lines import Look, cell_width
from rametctl.errors import ClientError, UsageError
from rametctl.local.log import log_line
from rametctl.nouns.sessions import check_outcome, person_needed
from rametctl.render import calls
from rametctl.render.conflicts import spans
from rametctl.render.diff import edit_lines, stat_lines
from rametctl.render.event import summary
from rametctl.render.format import duration, limit, money, span
from rametctl.render.inbox import wish
from rametctl.render.landing import landing_line
from rametctl.render.request import answer_command, request_lines, short_id
from rametctl.render.session import in_tree_order, port_ranges, reference
from rametctl.render.transcript import Conversation, entry_lines, last_words

Kind = attention_pb2.AttentionKind


def request(kind: "Kind.ValueType", data: object, tool: str = "") -> attention_pb2.AttentionRequest:
    return attention_pb2.AttentionRequest(
        id="0123456789abcdef", session_name="fix", kind=kind, input_json=json.dumps(data), tool=tool
    )


def shown(asked: attention_pb2.AttentionRequest) -> list[str]:
    return [item.text for item in request_lines(asked, now=0)]


def conversation(*events: event_pb2.Event) -> Conversation:
    made = Conversation(worktree="/tree", names={"s1": "fix"})
    for event in events:
        made.add(event)
    return made


def transcript(*events: event_pb2.Event, width: int | None = None, folded: bool = True) -> list[str]:
    made = conversation(*events)
    return [item.text for entry in made.entries for item in entry_lines(entry, Look(width, folded), made)]


def assistant(*blocks: event_pb2.ContentBlock, **fields: str) -> event_pb2.Event:
    message = event_pb2.AssistantMessage(blocks=blocks, **fields)
    return event_pb2.Event(session_id="s1", assistant_message=message)


def test_what_is_the_same_as_the_line_before_is_not_repeated() -> None:
    states = [landing_pb2.LANDING_STATE_MERGING] * 3 + [landing_pb2.LANDING_STATE_LANDED]
    events = [
        event_pb2.Event(
            seq=seq, landing_changed=event_pb2.LandingChanged(landing=landing_pb2.Landing(state=state, target="main"))
        )
        for seq, state in enumerate(states, 1)
    ]
    first, last = transcript(*events)
    assert (first, "landed" in last) == ("landing: being merged", True)


@pytest.mark.parametrize("kind", [each.name for each in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields])
def test_a_conversation_shows_no_event_as_a_list_of_fields(kind: str) -> None:
    event = event_pb2.Event(session_id="s1")
    payload = getattr(event, kind)
    payload.SetInParent()
    for field in payload.DESCRIPTOR.fields:
        if field.type == field.TYPE_STRING and not field.is_repeated:
            setattr(payload, field.name, "x")
    assert not re.search(r"\b[a-z_]+=", " ".join(transcript(event)))


def test_a_command_is_shown_in_full() -> None:
    lines = shown(request(Kind.ATTENTION_KIND_PERMISSION, {"command": "rm -rf build\nmake", "timeout": 5}, tool="Bash"))
    assert lines[1:-1] == ["  $ rm -rf build", "    make", "  timeout: 5"]
    assert lines[-1] == "  → rametctl approve 01234567   or: rametctl deny 01234567 -m WHY"


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("REVIEW", {}, ["rametctl done fix   or: rametctl deny 01234567 -m WHAT-TO-DO-BETTER", "diff fix"]),
        ("CONFLICT", {}, ["rametctl approve 01234567   dismisses it", "conflicts fix"]),
        ("LANDING", {"landing": "l1"}, ["rametctl queue retry fix   or: rametctl queue rm fix"]),
        (
            "TROUBLE",
            {"command": "rametctl resume fix"},
            ["rametctl resume fix   to dismiss it: rametctl deny 01234567", "logs fix"],
        ),
        ("TRUST", {"command": "rametctl repo trust"}, ["rametctl repo trust   to dismiss it: rametctl deny 01234567"]),
    ],
)
def test_what_the_daemon_asks_is_shown_with_the_command_that_helps(kind: str, data: object, said: list[str]) -> None:
    asked = request(Kind.Value(f"ATTENTION_KIND_{kind}"), data)
    asked.reason = "why it asks"
    see = [f"    see: rametctl {verb}" for verb in said[1:]]
    assert shown(asked)[1:] == ["  why it asks", f"  → {said[0]}", *see]
    assert all(cell_width(text) <= 80 for text in shown(asked))


def test_the_reason_of_a_landing_is_not_repeated() -> None:
    held = landing_pb2.Landing(
        session_name="fix", state=landing_pb2.LANDING_STATE_HELD, reason="the branch main is gone"
    )
    assert landing_line(held).text == "fix  held: the branch main is gone"
    assert landing_line(held, known="the branch main is gone (retried automatically)").text == "fix  held"
    held.reason += "; its agent made no new commit"
    assert landing_line(held, known="the branch main is gone").text == "fix  held: its agent made no new commit"
    held.reason = "the branch main is gone"
    assert landing_line(held, known="its agent is at work").text == "fix  held: the branch main is gone"


def test_an_edit_is_shown_as_a_diff_with_line_numbers() -> None:
    asked = request(Kind.ATTENTION_KIND_PERMISSION, {"file_path": "/tree/a.py"}, tool="Edit")
    asked.edit.CopyFrom(
        common_pb2.FileEdit(
            path="a.py", patch="@@ -9,2 +9,3 @@\n x = 1\n-y = 2\n+y = 3\n+z = 4", additions=2, deletions=1
        )
    )
    assert shown(asked)[1:-1] == [
        "  a.py  +2 −1",
        "     9   x = 1",
        "    10 - y = 2",
        "    10 + y = 3",
        "    11 + z = 4",
    ]


def test_an_edit_without_a_change_says_so() -> None:
    asked = request(Kind.ATTENTION_KIND_PERMISSION, {"file_path": "/tree/a.py", "content": "one"}, tool="Write")
    asked.edit.path = "a.py"
    assert shown(asked)[1:-1] == ["  a.py  no change", "    (no change)"]


def test_a_diff_says_how_much_it_leaves_out() -> None:
    edit = common_pb2.FileEdit(
        path="a.py", patch="@@ -0,0 +1,3 @@\n+1\n+2\n+3", creates=True, additions=9, omitted_lines=6
    )
    assert [item.text for item in edit_lines(edit, most=2)] == ["    1 + 1", "    2 + 2", "    … 7 more lines"]


def test_a_question_has_numbered_choices() -> None:
    data = {"questions": [{"question": "Which?", "options": [{"label": "A", "description": "first"}, {"label": "B"}]}]}
    lines = shown(request(Kind.ATTENTION_KIND_QUESTION, data))
    assert lines[1:] == ["  Which?", "    1) A  first", "    2) B", "  → rametctl answer 01234567 1"]


def test_a_plan_is_shown_in_full() -> None:
    lines = shown(request(Kind.ATTENTION_KIND_PLAN, {"plan": "1. look\n2. fix"}))
    assert lines[1:3] == ["  1. look", "  2. fix"]


def test_a_short_id_is_unique_among_those_shown() -> None:
    first, second = (attention_pb2.AttentionRequest(id=f"12345678{end}") for end in ("90a", "91b"))
    assert (short_id(first, [first, second]), short_id(first)) == ("1234567890", "12345678")
    assert answer_command(first, "fix") == "rametctl approve fix"


@pytest.mark.parametrize(
    ("text", "answer"),
    [("2", "B"), ("A", "A"), ("something else", "something else"), ("3rd way", "3rd way")],
)
def test_an_answer_is_a_number_a_label_or_any_text(text: str, answer: str) -> None:
    assert chosen_answer({"options": [{"label": "A"}, {"label": "B"}]}, text) == answer


def test_several_choices_are_joined_where_several_may_be_chosen() -> None:
    question = {"multiSelect": True, "options": [{"label": "A"}, {"label": "B"}, {"label": "C"}]}
    assert chosen_answer(question, "1, C") == "A, C"


def test_a_number_that_is_a_label_means_the_label() -> None:
    assert chosen_answer({"options": [{"label": "2"}, {"label": "1"}]}, "2") == "2"


def test_a_choice_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no choice 3"):
        chosen_answer({"options": [{"label": "A"}, {"label": "B"}]}, "3")


def call(tool: str, data: object, identity: str = "t1") -> event_pb2.ContentBlock:
    return event_pb2.ContentBlock(
        tool_call=event_pb2.ToolCall(tool=tool, input_json=json.dumps(data), tool_use_id=identity)
    )


def results(*texts: str, is_error: bool = False) -> event_pb2.Event:
    answers = [
        event_pb2.ToolResult(text=text, is_error=is_error, tool_use_id=f"t{number}")
        for number, text in enumerate(texts, 1)
    ]
    return event_pb2.Event(session_id="s1", user_message=event_pb2.UserMessage(results=answers))


def test_a_command_shows_the_end_of_its_output_and_how_much_is_above() -> None:
    said = assistant(event_pb2.ContentBlock(text="I look\nat it"), call("Bash", {"command": "make test"}))
    output = results("\n".join(f"line {number}" for number in range(9)))
    head = ["● I look", "  at it", "▸ Bash make test"]
    assert transcript(said, output) == [*head, "  … 4 lines above", *(f"  line {n}" for n in range(4, 9))]
    assert transcript(said, output, folded=False) == [*head, *(f"  line {n}" for n in range(9))]


@pytest.mark.parametrize(
    ("block", "answer", "shown"),
    [
        (call("Read", {"file_path": "/tree/src/a.py"}), "1\n2\n3\n", "▸ Read src/a.py · 3 lines"),
        (call("Grep", {"pattern": "x", "path": "/tree/src"}), "a:1\nb:2", "▸ Grep x in src · 2 lines"),
        (call("Glob", {"pattern": "*.py"}), "No files found", "▸ Glob *.py · 0 files"),
        (
            call("mcp__ramet__spawn_session", {"prompt": "write docs", "name": "docs"}),
            '{"session": {"name": "docs", "branch": "ramet/docs"}}',
            "▸ spawned docs (ramet/docs)",
        ),
        (
            call("mcp__ramet__wait_for_sessions", {"sessions": ["a", "b"]}),
            '{"done": true, "sessions": []}',
            "▸ waits for 2 sessions: done",
        ),
        (call("mcp__ramet__send_message", {"session": "docs", "text": "go on"}), "{}", "▸ tells docs: go on"),
    ],
)
def test_a_call_whose_result_says_little_is_one_line(block: event_pb2.ContentBlock, answer: str, shown: str) -> None:
    assert transcript(assistant(block), results(answer)) == [shown]


def test_a_call_of_another_mcp_server_names_server_tool_and_arguments() -> None:
    block = call("mcp__github__create_issue", {"title": "a b", "labels": ["x"]})
    lines = transcript(assistant(block), results("created"))
    assert lines == ['▸ github · create_issue (title="a b", labels=["x"])', "  created"]


def test_results_are_shown_as_a_terminal_would_without_markup_of_the_tools() -> None:
    text = "<tool_use_error>\x1b[31mboom\x1b[0m in /tree/a.py</tool_use_error>\n10%\r90%\r100%\r\n"
    assert transcript(assistant(call("Bash", {"command": "x"})), results(text, is_error=True)) == [
        "▸ Bash x", "  boom in a.py", "  100%",
    ]  # fmt: skip


def test_an_editing_tools_change_is_shown_instead_of_its_result() -> None:
    done = results("The file has been updated successfully.")
    done.user_message.results[0].edit.CopyFrom(
        common_pb2.FileEdit(path="/tree/a.py", patch="@@ -42,1 +42,1 @@\n-a\n+b", additions=1, deletions=1)
    )
    assert transcript(assistant(call("Edit", {"file_path": "/tree/a.py"})), done) == [
        "▸ Edit a.py · +1 −1", "    42 - a", "    42 + b",
    ]  # fmt: skip


def opened(asked: attention_pb2.AttentionRequest) -> event_pb2.Event:
    return event_pb2.Event(session_id="s1", request_opened=event_pb2.RequestOpened(request=asked))


def closed(asked: attention_pb2.AttentionRequest) -> event_pb2.Event:
    return event_pb2.Event(session_id="s1", request_closed=event_pb2.RequestClosed(request=asked))


def test_a_request_is_shown_below_its_call_until_it_is_answered() -> None:
    asked = request(Kind.ATTENTION_KIND_PERMISSION, {"command": "make", "description": "Build it"}, tool="Bash")
    asked.tool_use_id, asked.state = "t1", attention_pb2.ATTENTION_STATE_OPEN
    block = call("Bash", {"command": "make", "description": "Build it"})
    answer = "  → rametctl approve 01234567   or: rametctl deny 01234567 -m WHY"
    assert transcript(assistant(block), opened(asked)) == ["▸ Bash make", "  ? waits for you  Build it", answer]

    denied = attention_pb2.AttentionRequest()
    denied.CopyFrom(asked)
    denied.state, denied.answered_by = attention_pb2.ATTENTION_STATE_ANSWERED, "owner"
    denied.resolution.deny.message = "not now"
    drawn = results("not now", is_error=True)
    assert transcript(assistant(block), opened(asked), closed(denied), drawn) == [
        "▸ Bash make", "  ✗ denied by you: not now",
    ]  # fmt: skip


def test_a_review_repeats_nothing_in_the_transcript() -> None:
    review = request(Kind.ATTENTION_KIND_REVIEW, {})
    review.reason = "all done"
    ended = event_pb2.Event(turn_ended=event_pb2.TurnEnded(text="all done"))
    said = assistant(event_pb2.ContentBlock(text="all done"))
    assert transcript(said, ended, opened(review)) == ["● all done", "✓ 0.0s"]


def test_retries_are_one_line_in_words() -> None:
    def retry(attempt: int) -> event_pb2.Event:
        event = event_pb2.Event(
            api_retry=event_pb2.ApiRetry(attempt=attempt, max_attempts=10, error="authentication_failed")
        )
        event.api_retry.delay.FromMilliseconds(1239)
        return event

    assert transcript(retry(1), retry(2)) == ["⚠ authentication failed; again in 1 s (2 of 10)"]
    said = assistant(event_pb2.ContentBlock(text="there"))
    assert transcript(retry(1), retry(2), said)[0] == "⚠ authentication failed; tried 2 times of 10"


@pytest.mark.parametrize(
    "refused",
    [
        "The user doesn't want to proceed with this tool use. STOP what you are doing",
        "The user doesn't want to take this action right now. STOP what you are doing and wait for the user",
    ],
)
def test_an_interrupt_is_not_shown_as_a_failure(refused: str) -> None:
    words = "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=tool_use"
    ended = event_pb2.TurnEnded(is_error=True, text=words, terminal_reason="aborted_tools", cost_usd=0.01)
    ended.duration.FromSeconds(15)
    assert transcript(
        assistant(call("Bash", {"command": "sleep 9"})), results(refused, is_error=True), event_pb2.Event(turn_ended=ended)
    ) == ["▸ Bash sleep 9", "■ interrupted by you  15s · $0.01"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(Bash completed with no output)", ["  (no output)"]),
        ("Command running in background with ID: b1. Output is being written to: /t/b1. Use Read to check it.", []),
    ],
)
def test_a_result_written_for_the_model_is_not_shown_to_people(text: str, said: list[str]) -> None:
    assert transcript(assistant(call("Bash", {"command": "make"})), results(text)) == ["▸ Bash make", *said]


def test_a_restart_after_a_reboot_is_two_lines() -> None:
    def state(old: str, new: str, reason: str) -> event_pb2.Event:
        change = event_pb2.StateChanged(
            old_state=session_pb2.SessionState.Value(f"SESSION_STATE_{old}"),
            new_state=session_pb2.SessionState.Value(f"SESSION_STATE_{new}"),
            reason=reason,
        )
        return event_pb2.Event(state_changed=change)

    why = "the agent ended with its keeper, as in a reboot"
    assert transcript(
        event_pb2.Event(agent_exited=event_pb2.AgentExited(generation=1)),
        state("WORKING", "LOST", why),
        state("LOST", "QUEUED", f"restarting: {why}"),
        state("QUEUED", "STARTING", f"restarting: {why}"),
        state("STARTING", "LOST", "claude is not logged in"),
    ) == [f"■ {why}", "restarting", "■ lost: claude is not logged in"]


@pytest.mark.parametrize(
    ("ranges", "said"), [([(1, 1)], "line 1"), ([(27, 30)], "lines 27-30"), ([(3, 3), (7, 9)], "lines 3, 7-9")]
)
def test_lines_of_a_conflict_are_counted_right(ranges: list[tuple[int, int]], said: str) -> None:
    assert spans([worktree_pb2.LineRange(start=start, end=end) for start, end in ranges]) == said


def test_the_end_of_a_turn_shows_its_checkpoint() -> None:
    made = worktree_pb2.Checkpoint(number=2, reason=worktree_pb2.CHECKPOINT_REASON_TURN, files=1)
    start = worktree_pb2.Checkpoint(number=1, reason=worktree_pb2.CHECKPOINT_REASON_START)
    assert transcript(
        event_pb2.Event(checkpoint_made=event_pb2.CheckpointMade(checkpoint=start)),
        event_pb2.Event(turn_ended=event_pb2.TurnEnded(cost_usd=0.5)),
        event_pb2.Event(checkpoint_made=event_pb2.CheckpointMade(checkpoint=made)),
    ) == ["✓ 0.0s · $0.50 · checkpoint 2, 1 file"]


def test_markdown_is_rendered_for_a_terminal_and_hides_nothing() -> None:
    text = "**bold** `code` <!-- hidden --> [link](http://x.example)\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    lines = "\n".join(transcript(assistant(event_pb2.ContentBlock(text=text)), width=80))
    assert "**" not in lines
    assert "`" not in lines
    assert "|" not in lines
    assert "<!-- hidden -->" in lines
    assert "link (http://x.example)" in lines


def test_a_turn_goes_from_its_prompt_to_its_end_and_one_that_runs_counts() -> None:
    def prompt(number: int) -> list[event_pb2.Event]:
        queued = event_pb2.PromptQueued(prompt=session_pb2.Prompt(id=f"p{number}", text=f"prompt {number}"))
        return [
            event_pb2.Event(prompt_queued=queued),
            event_pb2.Event(prompt_received=event_pb2.PromptReceived(prompt_id=f"p{number}")),
        ]

    def texts(made: Conversation, count: int) -> list[str]:
        return [item.text for each in made.turns(count) for item in entry_lines(each, Look(), made)]

    end = event_pb2.Event(turn_ended=event_pb2.TurnEnded())
    two = [*prompt(1), end, *prompt(2), assistant(event_pb2.ContentBlock(text="two")), end]
    later = event_pb2.Event(
        prompt_queued=event_pb2.PromptQueued(prompt=session_pb2.Prompt(id="p9", text="and then this"))
    )
    assert texts(conversation(*two), 1) == ["› prompt 2", "● two", "✓ 0.0s"]
    running = conversation(*two, *prompt(3), later)
    assert texts(running, 1) == ["› prompt 3"]
    assert [each.text for each in running.status.queued.values()] == ["and then this"]
    assert texts(running, 9)[0] == "› prompt 1"


def test_a_transcript_leaves_out_repeated_events() -> None:
    def became(
        new: session_pb2.SessionState.ValueType, old: session_pb2.SessionState.ValueType, why: str = ""
    ) -> event_pb2.Event:
        return event_pb2.Event(state_changed=event_pb2.StateChanged(old_state=old, new_state=new, reason=why))

    queued, starting, working = (
        session_pb2.SESSION_STATE_QUEUED, session_pb2.SESSION_STATE_STARTING, session_pb2.SESSION_STATE_WORKING,
    )  # fmt: skip
    idle, paused = session_pb2.SESSION_STATE_IDLE, session_pb2.SESSION_STATE_PAUSED
    assert transcript(
        event_pb2.Event(agent_started=event_pb2.AgentStarted(pid=1)),
        event_pb2.Event(agent_attached=event_pb2.AgentAttached(generation=1)),
        event_pb2.Event(prompt_sent=event_pb2.PromptSent(prompt_id="p")),
        event_pb2.Event(prompt_received=event_pb2.PromptReceived(prompt_id="p")),
        became(queued, idle), became(starting, queued), became(working, starting), became(idle, working),
        became(session_pb2.SESSION_STATE_WAITING, working, "Bash: make"),
    ) == []  # fmt: skip
    assert transcript(became(paused, working), became(idle, paused), became(queued, idle, "no free slot")) == [
        "■ paused", "resumed", "queued: no free slot",
    ]  # fmt: skip


def test_a_prompt_says_who_it_is_from_and_the_daemons_own_is_short() -> None:
    def prompt(text: str, source: str) -> list[event_pb2.Event]:
        sent = session_pb2.Prompt(id=text, text=text, source=source)
        received = event_pb2.PromptReceived(prompt_id=text)
        return [
            event_pb2.Event(prompt_queued=event_pb2.PromptQueued(prompt=sent)),
            event_pb2.Event(prompt_received=received),
        ]

    long = "\n".join(str(number) for number in range(9))
    assert transcript(*prompt("do\nit", "owner"), *prompt("help", "session:s1"), *prompt(long, "daemon")) == [
        "› do", "  it", "› help  (from fix)",
        "› 0  (from the daemon)", *(f"  {number}" for number in range(1, 5)), "  … 4 more lines",
    ]  # fmt: skip


def test_a_review_in_the_log_shows_what_was_said() -> None:
    asked = attention_pb2.AttentionRequest(kind=Kind.ATTENTION_KIND_REVIEW, reason="all is well", input_json="{}")
    text = summary(event_pb2.Event(request_opened=event_pb2.RequestOpened(request=asked)), "").text
    assert text.endswith("review all is well")


def test_what_was_said_at_the_end_is_of_a_turn_that_succeeded() -> None:
    def ended(text: str, *, is_error: bool = False) -> event_pb2.Event:
        return event_pb2.Event(turn_ended=event_pb2.TurnEnded(text=text, is_error=is_error))

    def last(*events: event_pb2.Event) -> list[str]:
        return [item.text for item in last_words(conversation(*events), Look())]

    assert last(ended("old"), ended("new"), event_pb2.Event()) == ["● new"]
    assert last(ended("old"), ended("broke", is_error=True)) == []
    assert last() == []


def test_a_wait_names_the_inbox_once() -> None:
    asked = [request(Kind.ATTENTION_KIND_PERMISSION, {}, tool="Bash") for _ in range(3)]
    error = person_needed(asked)
    assert error.message == "fix needs you: permission: Bash (and 2 more)"
    assert f"{error.message} {error.hint}".count("rametctl inbox") == 1


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["IDLE"], "nothing to wait for: fix is idle and has no prompt"),
        ([], "nothing to wait for: a session was removed"),
        (["IDLE", "FAILED"], "fix is failed: no such model"),
    ],
)
def test_a_wait_that_cannot_end_says_why(states: list[str], words: str) -> None:
    sessions = [
        session_pb2.Session(
            name="fix",
            state=session_pb2.SessionState.Value(f"SESSION_STATE_{each}"),
            state_reason="no such model" if each == "FAILED" else "",
        )
        for each in states
    ]
    answer = session_pb2.WaitSessionsResponse(outcome=session_pb2.WAIT_OUTCOME_FAILED, sessions=sessions)
    with pytest.raises(ClientError) as caught:
        check_outcome(answer)
    assert (caught.value.message, caught.value.reason) == (words, "CANNOT_COME")


def test_a_failed_turn_says_why() -> None:
    ended = event_pb2.TurnEnded(is_error=True, subtype="error_max_turns", text="too many turns")
    assert transcript(event_pb2.Event(turn_ended=ended)) == ["✗ turn failed: too many turns  0.0s"]


def test_every_event_has_a_line_in_the_log_and_none_breaks_the_transcript() -> None:
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields:
        event = event_pb2.Event(session_id="s1")
        getattr(event, field.name).SetInParent()
        assert field.name in summary(event, "fix").text
        transcript(event)
    assert "does not know" in summary(event_pb2.Event(), "").text


def test_children_are_listed_below_their_parents_and_orphans_at_the_top() -> None:
    def session(name: str, parent: str = "") -> session_pb2.Session:
        return session_pb2.Session(id=name, name=name, parent_id=parent)

    sessions = [session("b", "a"), session("a"), session("c", "b"), session("x", "gone")]
    assert [(depth, item.name) for depth, item in in_tree_order(sessions)] == [(0, "a"), (1, "b"), (2, "c"), (0, "x")]


def test_a_reference_can_be_pasted_into_a_shell() -> None:
    assert reference(session_pb2.Session(id="i", name="it's")) == "'it'\"'\"'s'"
    assert reference(session_pb2.Session(id="i", name="-x")) == "i"


def test_a_cursor_is_parsed_as_printed() -> None:
    assert parse_cursor("a:b:12") == common_pb2.Cursor(epoch="a:b", seq=12)


@pytest.mark.parametrize("text", ["", "12", ":12", "e:", "e:-1", "e:x", "e:²", "e:" + "9" * 30])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a cursor"):
        parse_cursor(text)


def test_a_stat_shows_every_file_and_the_sum() -> None:
    answer = worktree_pb2.GetDiffResponse(additions=101, deletions=1)
    answer.files.add(path="a.py", kind=worktree_pb2.CHANGE_KIND_MODIFIED, additions=100)
    answer.files.add(path="b", old_path="c", kind=worktree_pb2.CHANGE_KIND_RENAMED, additions=1, deletions=1)
    answer.files.add(path="pic", kind=worktree_pb2.CHANGE_KIND_ADDED, binary=True)
    assert [item.text for item in stat_lines(answer)] == [
        f"a.py        | 100 {'+' * 30}",
        "c => b      |   2 +-",
        "pic (added) | binary",
        "3 files changed, 101 insertions(+), 1 deletion(-)",
    ]


def test_one_long_name_does_not_widen_every_line_of_a_stat() -> None:
    answer = worktree_pb2.GetDiffResponse()
    for path in ("short", "long" * 1000):
        answer.files.add(path=path, kind=worktree_pb2.CHANGE_KIND_MODIFIED, additions=1)
    short, long, _ = (item.text for item in stat_lines(answer))
    assert len(short) < 120
    assert "long" * 1000 in long


def test_a_log_line_is_readable_and_other_text_unchanged() -> None:
    text = '{"timestamp": "nonsense", "level": "warning", "event": "late", "session": "s1"}'
    assert log_line(text).text == "nonsense  warning  late  session=s1"
    assert log_line("Traceback").text == "Traceback"


@pytest.mark.parametrize(("dollars", "text"), [(0, "-"), (0.004, "<$0.01"), (0.05, "$0.05"), (1234.5, "$1234")])
def test_money_is_short(dollars: float, text: str) -> None:
    assert money(dollars) == text


@pytest.mark.parametrize("kind", ["PLAN", "REVIEW", "TROUBLE", "LANDING", "CONFLICT"])
def test_commands_for_a_request_quote_the_name_of_its_session(kind: str) -> None:
    name = "x; rm -rf ~"
    request = attention_pb2.AttentionRequest(
        id="r" * 20, kind=Kind.Value(f"ATTENTION_KIND_{kind}"), session_name=name, reason="why", input_json="{}"
    )
    _, *commands = [each.text for each in request_lines(request, 0.0)]
    assert [each for each in commands if name in each.replace(f"'{name}'", "")] == []
    assert any(f"'{name}'" in each for each in commands)


def test_a_held_session_is_in_the_inbox_with_the_reason_first() -> None:
    held = attention_pb2.AttentionRequest(kind=Kind.ATTENTION_KIND_TROUBLE, reason="$1.00 of $1.00 spent for today")
    assert wish(held) == "$1.00 of $1.00 spent for today"


@pytest.mark.parametrize(("dollars", "text"), [(5, "$5.00"), (0.5, "$0.50"), (0.001, "$0.001"), (0.125, "$0.125")])
def test_a_budget_below_a_cent_is_not_rounded_to_none(dollars: float, text: str) -> None:
    assert limit(dollars) == text


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200000, "2d")])
def test_ages_have_one_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.84, "0.8s"), (75, "1m 15s"), (7260, "2h 1m")])
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_last_words_are_long_and_folded() -> None:
    said = assistant(event_pb2.ContentBlock(text="\n".join(map(str, range(20)))))
    lines = [item.text for item in last_words(conversation(said), Look())]
    assert lines[0] == "● 0"
    assert lines[-1] == "… 8 more lines"


def test_consecutive_ports_are_a_range() -> None:
    assert port_ranges([24000, 24001, 24002, 24010]) == "24000-24002, 24010"
    assert port_ranges([]) == ""


def test_a_person_is_asked_about_all_of_an_edit_however_long() -> None:
    content = "".join(f"line {number}\n" for number in range(900))
    asked = request(Kind.ATTENTION_KIND_PERMISSION, {"file_path": "/tree/a.py", "content": content}, tool="Write")
    asked.edit.CopyFrom(
        common_pb2.FileEdit(
            path="a.py", patch="@@ -0,0 +1,900 @@\n+line 0", additions=900, omitted_lines=899, creates=True
        )
    )
    asked.tool_use_id, asked.state = "t1", attention_pb2.ATTENTION_STATE_OPEN
    block = call("Write", {"file_path": "/tree/a.py", "content": content})
    for lines in (shown(asked), transcript(assistant(block), opened(asked))):
        assert sum(text.startswith("    + line ") for text in lines) == 900
        assert lines[0].startswith(("01234567", "▸ Write a.py"))


def test_results_of_parallel_calls_are_below_their_calls() -> None:
    said = assistant(call("Bash", {"command": "one"}, "t1"), call("Bash", {"command": "two"}, "t2"))
    second = event_pb2.Event(
        user_message=event_pb2.UserMessage(results=[event_pb2.ToolResult(tool_use_id="t2", text="2")])
    )
    assert transcript(said, second, results("1")) == ["▸ Bash one", "  1", "▸ Bash two", "  2"]


@pytest.mark.parametrize(
    ("data", "reason", "told"),
    [
        ({"command": "make", "description": "Build it"}, "Build it", False),
        ({"file_path": "/tree/src/a.py", "content": "x"}, "src/a.py", False),
        ({"command": "make", "description": "Build it"}, "This command requires approval", True),
    ],
)
def test_a_reason_that_repeats_the_input_is_left_out(data: object, reason: str, told: bool) -> None:
    asked = request(Kind.ATTENTION_KIND_PERMISSION, data, tool="Bash")
    asked.reason = reason
    assert any(text.startswith("  why: ") for text in shown(asked)) == told


def test_calls_of_our_own_tools_are_known_without_importing_the_tools() -> None:
    assert f"mcp__{SERVER}__" == calls.OWN


@pytest.mark.parametrize(
    ("typed", "argv"),
    [
        (["npm", "test"], ("npm", "test")),
        (["npm ci && npm test"], ("sh", "-c", "npm ci && npm test")),
        (["make"], ("make",)),
        (["a b", "c"], ("a b", "c")),
        ([""], ("",)),
        ([], ()),
    ],
)
def test_one_quoted_command_line_goes_through_a_shell(typed: list[str], argv: tuple[str, ...]) -> None:
    assert argv_of(typed) == argv
