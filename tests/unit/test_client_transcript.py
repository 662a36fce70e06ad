"""Rendering of conversations: calls, results, prompts, turns, and omitted events."""

import json
import re

import pytest
from ramet.v1 import attention_pb2, common_pb2, event_pb2, landing_pb2, session_pb2, worktree_pb2
from rametctl.console.lines import Look
from rametctl.render.event import summary
from rametctl.render.request import request_lines
from rametctl.render.transcript import Conversation, entry_lines, last_words

from tests.support.messages import a_request

Kind = attention_pb2.AttentionKind


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
    asked = a_request(Kind.ATTENTION_KIND_PERMISSION, {"command": "make", "description": "Build it"}, tool="Bash")
    asked.tool_use_id, asked.state = "t1", attention_pb2.ATTENTION_STATE_OPEN
    block = call("Bash", {"command": "make", "description": "Build it"})
    answer = "  → rametctl approve 01234567   or: rametctl deny 01234567 -m WHY"
    assert transcript(assistant(block), opened(asked)) == ["▸ Bash make", "  ? waits for you  Build it", answer]

    denied = attention_pb2.AttentionRequest()
    denied.CopyFrom(asked)
    denied.state, denied.answered_by = attention_pb2.ATTENTION_STATE_ANSWERED, "owner"
    denied.resolution.deny.message = "not now\n- later"
    drawn = results("not now", is_error=True)
    assert transcript(assistant(block), opened(asked), closed(denied), drawn) == [
        "▸ Bash make", "  ✗ denied by you: not now", "    - later",
    ]  # fmt: skip


def test_a_review_repeats_nothing_in_the_transcript() -> None:
    review = a_request(Kind.ATTENTION_KIND_REVIEW, {})
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


def test_what_was_said_at_the_end_is_of_a_turn_that_succeeded() -> None:
    def ended(text: str, *, is_error: bool = False) -> event_pb2.Event:
        return event_pb2.Event(turn_ended=event_pb2.TurnEnded(text=text, is_error=is_error))

    def last(*events: event_pb2.Event) -> list[str]:
        return [item.text for item in last_words(conversation(*events), Look())]

    assert last(ended("old"), ended("new"), event_pb2.Event()) == ["● new"]
    assert last(ended("old"), ended("broke", is_error=True)) == []
    assert last() == []


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


def test_the_last_words_are_long_and_folded() -> None:
    said = assistant(event_pb2.ContentBlock(text="\n".join(map(str, range(20)))))
    lines = [item.text for item in last_words(conversation(said), Look())]
    assert lines[0] == "● 0"
    assert lines[-1] == "… 8 more lines"


def test_a_person_is_asked_about_all_of_an_edit_however_long() -> None:
    content = "".join(f"line {number}\n" for number in range(900))
    asked = a_request(Kind.ATTENTION_KIND_PERMISSION, {"file_path": "/tree/a.py", "content": content}, tool="Write")
    asked.edit.CopyFrom(
        common_pb2.FileEdit(
            path="a.py", patch="@@ -0,0 +1,900 @@\n+line 0", additions=900, omitted_lines=899, creates=True
        )
    )
    asked.tool_use_id, asked.state = "t1", attention_pb2.ATTENTION_STATE_OPEN
    block = call("Write", {"file_path": "/tree/a.py", "content": content})
    alone = [item.text for item in request_lines(asked, now=0)]
    for lines in (alone, transcript(assistant(block), opened(asked))):
        assert sum(text.startswith("    + line ") for text in lines) == 900
        assert lines[0].startswith(("01234567", "▸ Write a.py"))


def test_results_of_parallel_calls_are_below_their_calls() -> None:
    said = assistant(call("Bash", {"command": "one"}, "t1"), call("Bash", {"command": "two"}, "t2"))
    second = event_pb2.Event(
        user_message=event_pb2.UserMessage(results=[event_pb2.ToolResult(tool_use_id="t2", text="2")])
    )
    assert transcript(said, second, results("1")) == ["▸ Bash one", "  1", "▸ Bash two", "  2"]


@pytest.mark.parametrize(
    ("before", "red", "lines"),
    [
        ("CLEAN", False, []),
        ("SAME_FILE", False, []),
        ("CLEAN", True, ["will not merge with docs: "]),
        ("OVERLAP", False, ["merges with docs again"]),
    ],
)
def test_only_a_conflict_and_its_end_are_part_of_a_conversation(before: str, red: bool, lines: list[str]) -> None:
    change = event_pb2.ConflictChanged(
        conflict=worktree_pb2.Conflict(other_id="s2", other_name="docs", red=red),
        old_kind=worktree_pb2.ConflictKind.Value(f"CONFLICT_KIND_{before}"),
    )
    assert transcript(event_pb2.Event(conflict_changed=change)) == lines


def test_a_command_that_waits_shows_its_description_and_why_it_is_asked() -> None:
    asked = a_request(Kind.ATTENTION_KIND_PERMISSION, {"command": "make $X"}, tool="Bash")
    asked.state = attention_pb2.ATTENTION_STATE_OPEN
    asked.tool_use_id, asked.reason = "t1", "A variable cannot be checked"
    block = call("Bash", {"command": "make $X", "description": "Build it"})
    assert transcript(assistant(block), opened(asked))[1] == "  ? waits for you  Build it  A variable cannot be checked"
