"""The gRPC server with all services of the contract."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from ramet.v1 import (
    attention_pb2_grpc,
    daemon_pb2_grpc,
    event_pb2_grpc,
    landing_pb2_grpc,
    orchestration_pb2_grpc,
    plan_pb2_grpc,
    repo_pb2_grpc,
    session_pb2_grpc,
    terminal_pb2_grpc,
    worktree_pb2_grpc,
)

from rametd.api.attention import AttentionServicer
from rametd.api.calls import Calls
from rametd.api.contract import SERVICES
from rametd.api.daemon import DaemonServicer, Facts
from rametd.api.event import EventServicer
from rametd.api.interceptor import Gate
from rametd.api.landing import LandingServicer
from rametd.api.orchestration import OrchestrationServicer, tool_server
from rametd.api.plan import PlanServicer
from rametd.api.repo import RepoServicer
from rametd.api.session import SessionServicer
from rametd.api.terminal import TerminalServicer
from rametd.api.worktree import WorktreeServicer
from rametd.parts import Parts

MESSAGE_LIMIT = 64 << 20
METADATA_LIMIT = 4 << 20
"""A call may carry its caller's environment."""


def server_factory(
    parts: Parts,
    facts: Facts,
    serving: Callable[[], bool],
    configure: Callable[[], Awaitable[None]],
    stop: Callable[[], None],
) -> tuple[Callable[[], grpc.aio.Server], health.aio.HealthServicer]:
    """Return a factory of servers, and the health service that they share.

    Each server has all services of the contract and is not bound yet. ``serving`` returns whether
    recovery is over; ``configure`` applies a changed configuration file; ``stop`` ends the daemon.
    The servers share all servicers: if the socket of a server is lost, gRPC cannot bind it again,
    and a new server is needed.
    """
    core = parts.core
    calls = Calls(core)
    healthy = health.aio.HealthServicer()
    orchestrating = OrchestrationServicer(core, calls, parts.creator, parts.orchestration, parts.ownership)
    sessions = SessionServicer(
        core,
        calls,
        parts.creator,
        parts.forker,
        parts.sessions,
        parts.remover,
        parts.archiver,
        parts.restorer,
        parts.landed,
        parts.orchestration,
        parts.attachments,
    )
    worktrees = WorktreeServicer(
        core,
        calls,
        parts.checkpointer,
        parts.rewinder,
        parts.remover,
        parts.restorer,
        parts.trash,
        parts.pool,
        parts.radar,
        parts.syncer,
        parts.trackers,
        parts.supervisor,
    )
    terminals = TerminalServicer(core, calls, parts.terminals, parts.setup, parts.checkpointer)
    landings = LandingServicer(core, calls, parts.queue, parts.pulls, parts.pull_cleaner)
    planning = PlanServicer(core, calls, parts.plans, parts.plan_cleaner, parts.converger)

    async def use_tools(session_id: str, key: str, message: Mapping[str, Any]) -> dict[str, Any] | None:
        return await tool_server(core, orchestrating, session_id).answer(dict(message), key)

    parts.tools.bind(use_tools)
    added: tuple[tuple[Callable[[Any, Any], None], Any], ...] = (
        (daemon_pb2_grpc.add_DaemonServiceServicer_to_server, DaemonServicer(core, facts, serving, configure, stop)),
        (repo_pb2_grpc.add_RepoServiceServicer_to_server, RepoServicer(core, calls, parts.pool, parts.withheld)),
        (session_pb2_grpc.add_SessionServiceServicer_to_server, sessions),
        (event_pb2_grpc.add_EventServiceServicer_to_server, EventServicer(core)),
        (
            attention_pb2_grpc.add_AttentionServiceServicer_to_server,
            AttentionServicer(core, calls, parts.resolvers, parts.notifier, parts.withheld),
        ),
        (worktree_pb2_grpc.add_WorktreeServiceServicer_to_server, worktrees),
        (terminal_pb2_grpc.add_TerminalServiceServicer_to_server, terminals),
        (orchestration_pb2_grpc.add_OrchestrationServiceServicer_to_server, orchestrating),
        (landing_pb2_grpc.add_LandingServiceServicer_to_server, landings),
        (plan_pb2_grpc.add_PlanServiceServicer_to_server, planning),
        (health_pb2_grpc.add_HealthServicer_to_server, healthy),
    )

    def create() -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=[Gate(core, serving)],
            options=[
                ("grpc.max_metadata_size", METADATA_LIMIT),
                ("grpc.max_receive_message_length", MESSAGE_LIMIT),
                ("grpc.max_send_message_length", MESSAGE_LIMIT),
                ("grpc.so_reuseport", 0),
            ],
        )
        for add, servicer in added:
            add(servicer, server)
        reflection.enable_server_reflection(
            [*(service.full_name for service in SERVICES), health.SERVICE_NAME, reflection.SERVICE_NAME], server
        )
        return server

    return create, healthy


async def report_health(servicer: health.aio.HealthServicer, status: Any) -> None:
    """Set the health of the whole server ("") and of each service."""
    for service in ("", *(each.full_name for each in SERVICES)):
        await servicer.set(service, status)
