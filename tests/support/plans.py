"""Calls on plans of one repository, and readers of their answers."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from ramet.v1 import plan_pb2, session_pb2

from tests.support.daemon import Client, reason_of

# The shape of the plan in the README of parallel-sessions: its second thread is an id and a
# comment.
PARALLEL_SESSIONS = """\
[[threads]]
id = 1
branch = "extract-auth"
goal = "Move auth middleware out of services/api into services/auth"
owns = ["services/auth/", "tests/auth/"]
forbids = ["services/payments/", "platform/models/"]
merge_order = 1

[[threads]]
id = 2
# ...
"""


def of(repository: Path, name: str) -> str:
    return f"{repository.name}/{name}"


async def sessions(client: Client, repository: Path) -> Sequence[session_pb2.Session]:
    request = session_pb2.ListSessionsRequest(repo=repository.name)
    try:
        return (await client.sessions.ListSessions(request, metadata=client.metadata)).sessions
    except grpc.aio.AioRpcError as error:
        if reason_of(error) != "REPO_NOT_FOUND":
            raise
        return ()


async def plans(client: Client, repository: Path) -> list[plan_pb2.Plan]:
    found = (await client.plans.ListPlans(plan_pb2.ListPlansRequest(), metadata=client.metadata)).plans
    return [plan for plan in found if plan.repo == repository.name]


async def check(client: Client, repository: Path, text: str) -> plan_pb2.CheckPlanResponse:
    request = plan_pb2.CheckPlanRequest(path=str(repository), text=text, file=str(repository / "plan.toml"))
    return await client.plans.CheckPlan(request, metadata=client.metadata)


async def apply(client: Client, repository: Path, text: str, **fields: Any) -> plan_pb2.ApplyPlanResponse:
    fields.setdefault("request_id", str(uuid.uuid4()))
    fields.setdefault("file", str(repository / "plan.toml"))
    request = plan_pb2.ApplyPlanRequest(path=str(repository), text=text, **fields)
    return await client.plans.ApplyPlan(request, metadata=client.metadata)


async def refused(client: Client, repository: Path, text: str) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await apply(client, repository, text)
    return caught.value


async def status(client: Client, repository: Path) -> plan_pb2.GetPlanResponse:
    return await client.plans.GetPlan(plan_pb2.GetPlanRequest(path=str(repository)), metadata=client.metadata)


async def clean_up(client: Client, repository: Path, *, dry_run: bool = False) -> plan_pb2.CleanUpPlanResponse:
    request = plan_pb2.CleanUpPlanRequest(path=str(repository), dry_run=dry_run, request_id=str(uuid.uuid4()))
    return await client.plans.CleanUpPlan(request, metadata=client.metadata)


def actions(response: plan_pb2.ApplyPlanResponse) -> list[tuple[str, str]]:
    return [(change.action, change.thread) for change in response.changes]


def prompted(prompt: str) -> str:
    """Return a prompt as a TOML string."""
    return f"prompt = '''{prompt}'''"
