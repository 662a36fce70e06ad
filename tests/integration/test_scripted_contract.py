"""The scripted agent compared with the real CLI: the same frames for the same conversation."""

import json
from pathlib import Path

import pytest

from tests.support.agents import SCRIPTED
from tests.support.contract import GOLDEN, Shapes, converse, converse_with_both, kinds, shapes

# Fields that the scripted agent leaves out: no reader of frames should need them.
LEFT_OUT = {
    "control_response:commands": {
        "analytics_disabled", "fast_mode_disabled_reason", "fast_mode_state", "feedback_mode", "hooks_when_unanswered_kept",
        "ide_rc_auto_enable_gate", "other_hook_ask_outranks_host", "remote_control_auto_connect_default", "remote_control_auto_enable",
        "remote_control_auto_on_by_default", "remote_control_available", "sandbox_enabled", "user_output_styles_dir",
    },
    "init": {
        "analytics_disabled", "fast_mode_disabled_reason", "fast_mode_state", "memory_paths", "messaging_socket_path",
        "per_turn_effort_active", "product_feedback_disabled", "sandbox_enabled", "served_by_anthropic", "terminal_slash_commands",
        "ultrathink_available", "ultrathink_typed_raises", "view_mode",
    },
    "result": {
        "fast_mode_disabled_reason", "fast_mode_state", "first_content_frame_ms", "safety_stops", "subagent_stats", "time_to_request_ms",
        "ttft_ms", "ttft_stream_ms", "usage.cache_creation", "usage.fallback_credit", "usage.inference_geo", "usage.iterations",
        "usage.output_tokens_details", "usage.speed",
    },
}  # fmt: skip
# Their order among the others is a race in the real CLI too.
UNORDERED = {
    "control_response:success",
    "mcp:initialize",
    "mcp:notifications/initialized",
    "mcp:tools/list",
    "system:thinking_tokens",
}


def golden() -> Shapes:
    recorded: Shapes = json.loads(GOLDEN.read_text())
    return recorded


def left_out(kind: str, path: str) -> bool:
    path = path.removeprefix("response.response.")
    names = LEFT_OUT.get(kind) or LEFT_OUT.get(kind.partition(":")[0]) or set()
    return any(path == name or path.startswith(f"{name}.") for name in names)


async def test_the_scripted_agents_frames_have_the_recorded_shapes(tmp_path: Path) -> None:
    recorded, ours = golden(), shapes(await converse(tmp_path, SCRIPTED, 0))
    assert ours.keys() == recorded.keys()
    for kind, shape in ours.items():
        have = {*shape["always"], *shape["sometimes"]}
        invented = have - {*recorded[kind]["always"], *recorded[kind]["sometimes"]}
        lacking = {path for path in {*recorded[kind]["always"]} - {*shape["always"]} if not left_out(kind, path)}
        assert (kind, invented, lacking) == (kind, set(), set())


@pytest.mark.real_cli
async def test_both_agents_send_the_same_conversation_in_the_same_order() -> None:
    real, scripted = await converse_with_both()
    assert [kind for kind in kinds(scripted) if kind not in UNORDERED] == [
        kind for kind in kinds(real) if kind not in UNORDERED
    ]
    assert shapes(real) == golden(), "the CLI changed: python -m tests.support.contract"
