"""The calls of the contract: which there are, and the server that answers them."""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from ramet.v1 import (
    attention_pb2,
    attention_pb2_grpc,
    daemon_pb2,
    daemon_pb2_grpc,
    event_pb2,
    event_pb2_grpc,
    landing_pb2,
    landing_pb2_grpc,
    orchestration_pb2,
    orchestration_pb2_grpc,
    plan_pb2,
    plan_pb2_grpc,
    repo_pb2,
    repo_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    terminal_pb2,
    terminal_pb2_grpc,
    worktree_pb2,
    worktree_pb2_grpc,
)

from rametd.api.attention import AttentionServicer
from rametd.api.calls import Calls
from rametd.api.daemon import DaemonServicer, Facts
from rametd.api.event import EventServicer
from rametd.api.interceptor import Gate
from rametd.api.landing import LandingServicer
from rametd.api.orchestration import OrchestrationServicer
from rametd.api.plan import PlanServicer
from rametd.api.repo import RepoServicer
from rametd.api.session import SessionServicer
from rametd.api.terminal import TerminalServicer
from rametd.api.tools import tool_server
from rametd.api.worktree import WorktreeServicer
from rametd.parts import Parts

MESSAGE_LIMIT = 64 << 20

CONTRACT = tuple(
    service
    for module in (
        daemon_pb2,
        repo_pb2,
        session_pb2,
        event_pb2,
        attention_pb2,
        worktree_pb2,
        terminal_pb2,
        orchestration_pb2,
        plan_pb2,
        landing_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
)
"""The services of the contract, as descriptors."""


def make_server(
    parts: Parts, facts: Facts, serving: Callable[[], bool], stop: Callable[[], None]
) -> tuple[grpc.aio.Server, health.aio.HealthServicer]:
    """A server with every service of the contract, not yet bound to anything. ``serving`` tells whether recovery is over, ``stop`` ends
    the daemon."""
    core = parts.core
    server = grpc.aio.server(
        interceptors=[Gate(core, serving)],
        options=[
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            ("grpc.max_send_message_length", MESSAGE_LIMIT),
            ("grpc.so_reuseport", 0),
        ],
    )
    calls = Calls(core)
    healthy = health.aio.HealthServicer()
    orchestrating = OrchestrationServicer(core, calls, parts.creator, parts.orchestration, parts.ownership)
    daemon_pb2_grpc.add_DaemonServiceServicer_to_server(DaemonServicer(core, facts, serving, stop), server)
    repo_pb2_grpc.add_RepoServiceServicer_to_server(RepoServicer(core, calls, parts.pool), server)
    sessions = SessionServicer(
        core, calls, parts.creator, parts.forker, parts.sessions, parts.departures, parts.orchestration
    )
    session_pb2_grpc.add_SessionServiceServicer_to_server(sessions, server)
    event_pb2_grpc.add_EventServiceServicer_to_server(EventServicer(core), server)
    attention_pb2_grpc.add_AttentionServiceServicer_to_server(AttentionServicer(core, calls), server)
    worktrees = WorktreeServicer(
        core,
        calls,
        parts.checkpointer,
        parts.rewinder,
        parts.departures,
        parts.unfinished,
        parts.pool,
        parts.radar,
        parts.syncer,
    )
    worktree_pb2_grpc.add_WorktreeServiceServicer_to_server(worktrees, server)
    terminals = TerminalServicer(core, calls, parts.terminals, parts.setup)
    terminal_pb2_grpc.add_TerminalServiceServicer_to_server(terminals, server)
    orchestration_pb2_grpc.add_OrchestrationServiceServicer_to_server(orchestrating, server)
    landings = LandingServicer(core, calls, parts.queue, parts.pulls, parts.pull_cleaner)
    landing_pb2_grpc.add_LandingServiceServicer_to_server(landings, server)
    planning = PlanServicer(core, calls, parts.plans, parts.plan_cleaner, parts.converger)
    plan_pb2_grpc.add_PlanServiceServicer_to_server(planning, server)

    async def use_tools(session_id: str, key: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        return await tool_server(core, orchestrating, session_id).answer(dict(message), key)

    core.use_tools = use_tools
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection(
        [*(service.full_name for service in CONTRACT), health.SERVICE_NAME, reflection.SERVICE_NAME], server
    )
    return server, healthy


async def report_health(servicer: health.aio.HealthServicer, status: Any) -> None:
    """Of the server as a whole ("") and of each service."""
    for service in ("", *(each.full_name for each in CONTRACT)):
        await servicer.set(service, status)
