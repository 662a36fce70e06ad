"""What people are shown of sessions, requests and events."""

import json

import pytest
from ramet.v1 import attention_pb2, common_pb2, event_pb2, session_pb2, worktree_pb2
from rametctl.commands.answer import chosen_answer
from rametctl.commands.watch import last_turn
from rametctl.errors import UsageError
from rametctl.follow import parse_cursor
from rametctl.render.daemonlog import log_line
from rametctl.render.diff import stat_lines
from rametctl.render.event import summary
from rametctl.render.format import duration, money, span
from rametctl.render.request import answer_command, request_lines, short_id
from rametctl.render.session import in_tree_order, reference
from rametctl.render.transcript import Transcript, last_words
from rametctl.sessions import person_needed

Kind = attention_pb2.AttentionKind


def request(kind: "Kind.ValueType", data: object, tool: str = "") -> attention_pb2.AttentionRequest:
    return attention_pb2.AttentionRequest(
        id="0123456789abcdef", session_name="fix", kind=kind, input_json=json.dumps(data), tool=tool
    )


def shown(asked: attention_pb2.AttentionRequest) -> list[str]:
    return [item.text for item in request_lines(asked, now=0)]


def transcript(*events: event_pb2.Event, prefixed: bool = False) -> list[str]:
    made = Transcript({"s1": "fix"}, prefixed=prefixed)
    return [item.text for event in events for item in made.lines(event)]


def assistant(*blocks: event_pb2.ContentBlock, **fields: str) -> event_pb2.Event:
    message = event_pb2.AssistantMessage(blocks=blocks, **fields)
    return event_pb2.Event(session_id="s1", assistant_message=message)


def test_a_command_is_shown_in_full() -> None:
    lines = shown(request(Kind.ATTENTION_KIND_PERMISSION, {"command": "rm -rf build\nmake", "timeout": 5}, tool="Bash"))
    assert lines[1:-1] == ["  $ rm -rf build", "    make", "  timeout: 5"]
    assert lines[-1] == "  → rametctl approve 01234567   or: rametctl deny 01234567 -m WHY"


def test_an_edit_is_shown_as_a_diff() -> None:
    edit = {"file_path": "/a.py", "old_string": "x = 1\ny = 2", "new_string": "x = 1\ny = 3"}
    lines = shown(request(Kind.ATTENTION_KIND_PERMISSION, edit, tool="Edit"))
    assert "  -y = 2" in lines
    assert "  +y = 3" in lines


def test_a_new_file_is_shown_whole() -> None:
    content = {"file_path": "/nowhere/a.py", "content": "one\ntwo\n"}
    lines = shown(request(Kind.ATTENTION_KIND_PERMISSION, content, tool="Write"))
    assert [text for text in lines if text.startswith("  +")] == ["  +++ /nowhere/a.py", "  +one", "  +two"]


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


def test_a_transcript_shows_text_calls_and_results() -> None:
    call = event_pb2.ToolCall(tool="Bash", input_json='{"command": "make\\ntest", "description": "run"}')
    results = [
        event_pb2.ToolResult(text="\n".join(f"line {number}" for number in range(9))),
        event_pb2.ToolResult(text="boom", is_error=True),
    ]
    assert transcript(
        assistant(event_pb2.ContentBlock(text="I look\nat it"), event_pb2.ContentBlock(tool_call=call)),
        event_pb2.Event(session_id="s1", user_message=event_pb2.UserMessage(results=results)),
    ) == [
        "● I look", "  at it", "▸ Bash make test",
        *(f"  line {number}" for number in range(6)), "  … 3 more lines", "  boom",
    ]  # fmt: skip


def test_a_transcript_leaves_out_what_other_events_tell() -> None:
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
        "now paused", "now idle", "now queued: no free slot",
    ]  # fmt: skip


def test_a_prompt_says_who_it_is_from_and_the_daemons_own_is_short() -> None:
    def prompt(text: str, source: str) -> event_pb2.Event:
        return event_pb2.Event(
            prompt_queued=event_pb2.PromptQueued(prompt=session_pb2.Prompt(text=text, source=source))
        )

    assert transcript(
        prompt("do\nit", "owner"), prompt("help", "session:s1"), prompt("Go on. You were asked:\n\nmuch", "daemon")
    ) == ["› do", "  it", "› help  (from fix)", "› Go on. You were asked: …  (from the daemon)"]  # fmt: skip


def test_a_worktree_is_told_by_its_path() -> None:
    made = event_pb2.WorktreeCreated(path="/trees/1", branch="ramet/fix", commit="c0ffee")
    assert transcript(event_pb2.Event(worktree_created=made)) == ["worktree /trees/1"]


def test_a_review_in_the_log_shows_what_was_said() -> None:
    asked = attention_pb2.AttentionRequest(kind=Kind.ATTENTION_KIND_REVIEW, reason="all is well", input_json="{}")
    text = summary(event_pb2.Event(request_opened=event_pb2.RequestOpened(request=asked)), "").text
    assert text.endswith("review all is well")


def test_what_was_said_at_the_end_is_of_the_newest_turn_that_succeeded() -> None:
    def ended(text: str, *, is_error: bool = False) -> event_pb2.Event:
        return event_pb2.Event(turn_ended=event_pb2.TurnEnded(text=text, is_error=is_error))

    assert [item.text for item in last_words([ended("old"), ended("new"), event_pb2.Event()])] == ["new"]
    assert list(last_words([ended("old"), ended("broke", is_error=True)])) == []
    assert list(last_words([])) == []


def test_a_wait_names_the_inbox_once() -> None:
    asked = [request(Kind.ATTENTION_KIND_PERMISSION, {}, tool="Bash") for _ in range(3)]
    error = person_needed(asked)
    assert error.message == "fix waits for a person: permission: Bash (and 2 more)"
    assert f"{error.message} {error.hint}".count("rametctl inbox") == 1


def test_a_transcript_of_several_sessions_begins_each_line_with_the_name() -> None:
    ended = event_pb2.TurnEnded(cost_usd=0.5)
    ended.duration.FromSeconds(90)
    assert transcript(event_pb2.Event(session_id="s1", turn_ended=ended), prefixed=True) == [
        "fix  ✓ turn ended  $0.50, 1m 30s"
    ]


def test_a_failed_turn_says_why() -> None:
    ended = event_pb2.TurnEnded(is_error=True, subtype="error_max_turns", text="too many turns")
    assert transcript(event_pb2.Event(turn_ended=ended)) == ["✗ turn failed: too many turns  -, 0.0s"]


def test_every_event_has_a_line_in_the_log_and_none_breaks_the_transcript() -> None:
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields:
        event = event_pb2.Event(session_id="s1")
        getattr(event, field.name).SetInParent()
        assert field.name in summary(event, "fix").text
        transcript(event)
    assert "does not know" in summary(event_pb2.Event(), "").text


def test_context_begins_with_the_newest_prompt() -> None:
    def queued(seq: int) -> event_pb2.Event:
        return event_pb2.Event(seq=seq, prompt_queued=event_pb2.PromptQueued())

    said = event_pb2.Event(seq=9, turn_ended=event_pb2.TurnEnded())
    assert [event.seq for event in last_turn([queued(1), said, queued(3), said])] == [3, 9]
    assert [event.seq for event in last_turn([said])] == [9]


def test_children_stand_below_their_parents_and_orphans_at_the_top() -> None:
    def session(name: str, parent: str = "") -> session_pb2.Session:
        return session_pb2.Session(id=name, name=name, parent_id=parent)

    sessions = [session("b", "a"), session("a"), session("c", "b"), session("x", "gone")]
    assert [(depth, item.name) for depth, item in in_tree_order(sessions)] == [(0, "a"), (1, "b"), (2, "c"), (0, "x")]


def test_a_reference_can_be_pasted_into_a_shell() -> None:
    assert reference(session_pb2.Session(id="i", name="it's")) == "'it'\"'\"'s'"
    assert reference(session_pb2.Session(id="i", name="-x")) == "i"


def test_a_cursor_is_read_as_it_is_printed() -> None:
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


def test_a_log_line_is_readable_and_what_is_no_json_stays_as_it_is() -> None:
    text = '{"timestamp": "nonsense", "level": "warning", "event": "late", "session": "s1"}'
    assert log_line(text).text == "nonsense  warning  late  session=s1"
    assert log_line("Traceback").text == "Traceback"


@pytest.mark.parametrize(("dollars", "text"), [(0, "-"), (0.004, "<$0.01"), (0.05, "$0.05"), (1234.5, "$1234")])
def test_money_is_short(dollars: float, text: str) -> None:
    assert money(dollars) == text


@pytest.mark.parametrize(("seconds", "text"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200000, "2d")])
def test_ages_have_one_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.84, "0.8s"), (75, "1m 15s"), (7260, "2h 1m")])
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
