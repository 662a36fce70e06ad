"""Messages as JSON."""

import json

from google.protobuf.descriptor import FieldDescriptor
from ramet.jsonify import dumps, enum_name, to_json
from ramet.v1 import attention_pb2, common_pb2, event_pb2, session_pb2

SESSION_FIELDS = [
    "id",
    "name",
    "repo",
    "branch",
    "base_ref",
    "base_commit",
    "worktree",
    "parent_id",
    "agent",
    "model",
    "mode",
    "state",
    "attention",
    "state_reason",
    "agent_alive",
    "turns",
    "cost_usd",
    "tokens",
    "budget_usd",
    "ports",
    "create_time",
    "update_time",
    "last_seq",
]


def test_an_empty_session_has_every_documented_field() -> None:
    shown = to_json(session_pb2.Session())
    assert set(SESSION_FIELDS) <= set(shown)
    assert [shown[key] for key in ("cost_usd", "tokens", "budget_usd", "budget_tokens", "create_time")] == [None] * 5
    assert shown["ports"] == []


def test_enums_are_short_names_in_lower_case_and_modes_as_the_command_line_has_them() -> None:
    shown = to_json(
        session_pb2.Session(state=session_pb2.SESSION_STATE_WAITING, mode=common_pb2.PERMISSION_MODE_BYPASS_PERMISSIONS)
    )
    assert (shown["state"], shown["mode"]) == ("waiting", "bypassPermissions")


def test_an_enum_value_of_a_later_release_is_still_shown() -> None:
    session = session_pb2.Session()
    session.ParseFromString(bytes([12 << 3, 99]))
    assert enum_name(session, "state") == "unknown_99"


def test_large_numbers_stay_numbers_and_times_are_rfc_3339() -> None:
    session = session_pb2.Session(last_seq=2**63)
    session.create_time.FromJsonString("2026-11-27T21:05:09.25Z")
    shown = to_json(session)
    assert (shown["last_seq"], shown["create_time"]) == (2**63, "2026-11-27T21:05:09.250Z")


def test_an_optional_field_that_is_zero_is_not_the_same_as_one_that_is_not_set() -> None:
    assert to_json(session_pb2.Session(budget_usd=0))["budget_usd"] == 0


def test_durations_are_seconds_and_cursors_are_texts() -> None:
    turn = event_pb2.TurnEnded()
    turn.duration.FromMilliseconds(1500)
    assert to_json(turn)["duration"] == 1.5
    step = event_pb2.WatchEventsResponse(cursor=common_pb2.Cursor(epoch="e", seq=7))
    assert to_json(step)["cursor"] == "e:7"


def test_of_a_oneof_the_field_that_is_set_is_there_and_named() -> None:
    event = event_pb2.Event(warning=event_pb2.Warning(message="hot"))
    shown = to_json(event)
    assert (shown["payload"], shown["warning"]) == ("warning", {"message": "hot"})
    assert "state_changed" not in shown
    assert to_json(event_pb2.Event())["payload"] is None


def test_json_in_a_field_is_shown_as_json() -> None:
    shown = to_json(attention_pb2.AttentionRequest(input_json='{"command": "ls"}', suggestions_json=""))
    assert (shown["input"], shown["suggestions"]) == ({"command": "ls"}, None)
    assert to_json(attention_pb2.AttentionRequest(input_json="{broken"))["input"] == "{broken"


def test_every_event_can_be_shown() -> None:
    for field in event_pb2.Event.DESCRIPTOR.oneofs_by_name["payload"].fields:
        assert field.type == FieldDescriptor.TYPE_MESSAGE
        event = event_pb2.Event()
        getattr(event, field.name).SetInParent()
        assert json.loads(dumps(to_json(event)))["payload"] == field.name
