"""Every mutating call, each with the preparation that it needs."""

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import attention_pb2, landing_pb2, plan_pb2, repo_pb2, session_pb2, worktree_pb2

from tests.support.agents import script
from tests.support.daemon import WAITING, Client, DaemonProcess, git
from tests.support.landing import Landings, with_work
from tests.support.rpc import RPCS
from tests.support.running import repo_of, token_for

Make = Callable[[Client, DaemonProcess], Awaitable[tuple[dict[str, Any], ...]]]
"""Prepares a call; returns its fields, those of another call of the same method, and the caller if
that matters."""


async def idle(client: Client, daemon: DaemonProcess) -> str:
    return (await client.create(repo_of(daemon))).id


async def create(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"path": str(repo_of(daemon)), "name": "made"}, {"path": str(repo_of(daemon)), "name": "another"}


def on_session(**more: Any) -> Make:
    async def prepare(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
        return {"session": await idle(client, daemon), **more}, {"session": await idle(client, daemon), **more}

    return prepare


async def update(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity = await idle(client, daemon)

    def fields(priority: int) -> dict[str, Any]:
        changed = session_pb2.Session(priority=priority)
        return {"session_id": identity, "session": changed, "update_mask": FieldMask(paths=["priority"])}

    return fields(3), fields(4)


async def send(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity = await idle(client, daemon)
    await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session=identity))  # the prompt stays queued
    return {"session": identity, "prompt": "one"}, {"session": identity, "prompt": "two"}


async def withdraw(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    fields, _ = await send(client, daemon)
    for text in ("one", "two"):
        await client.sessions.SendPrompt(session_pb2.SendPromptRequest(session=fields["session"], prompt=text))
    return {"session": fields["session"]}, {"session": fields["session"], "prompts": ["none"]}


async def register(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    paths = [daemon.sandbox.repository(f"reg{uuid.uuid4().hex[:6]}") for _ in range(2)]
    return {"path": str(paths[0])}, {"path": str(paths[1])}


async def registered(client: Client, daemon: DaemonProcess) -> str:
    path = daemon.sandbox.repository(f"reg{uuid.uuid4().hex[:6]}")
    return (await client.repos.RegisterRepo(repo_pb2.RegisterRepoRequest(path=str(path)))).repo.id


async def change_repo(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity, name = await registered(client, daemon), uuid.uuid4().hex[:6]

    def fields(name: str) -> dict[str, Any]:
        return {"repo_id": identity, "repo": repo_pb2.Repo(name=name), "update_mask": FieldMask(paths=["name"])}

    return fields(name), fields(f"{name}-2")


async def forget_repo(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"repo": await registered(client, daemon)}, {"repo": await registered(client, daemon)}


async def resolve(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    ask = {"tool": "Bash", "input": {"command": "true", "description": "x"}}
    made = await client.create(repo_of(daemon), script(ask))
    await client.reach(made.id, WAITING)
    listed = await client.attention.ListRequests(attention_pb2.ListRequestsRequest(session=made.id))
    identity = listed.requests[0].id
    deny = attention_pb2.Resolution(deny=attention_pb2.Denial(message="no"))
    approve = attention_pb2.Resolution(approve=attention_pb2.Approval())
    return {"request": identity, "resolution": deny}, {"request": identity, "resolution": approve}


async def spawn(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    path = str(repo_of(daemon))
    return {"path": path, "prompt": "x", "name": "spawned"}, {"path": path, "prompt": "x", "name": "spawned-2"}


async def report(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    token = token_for(daemon, await idle(client, daemon))
    return {"text": "all done"}, {"text": "nothing done"}, {"ramet-token": token}


async def commented(client: Client, daemon: DaemonProcess) -> tuple[str, str]:
    """Return a session with a comment, and the comment."""
    identity = await idle(client, daemon)
    request = worktree_pb2.AddCommentRequest(session=identity, path="dir0/file0.txt", line=1, text="why")
    return identity, (await client.worktrees.AddComment(request)).comment.id


async def resolve_comment(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"comment": (await commented(client, daemon))[1]}, {"comment": (await commented(client, daemon))[1]}


async def send_comments(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    sessions = [(await commented(client, daemon))[0] for _ in range(2)]
    for each in sessions:
        await client.sessions.PauseSession(session_pb2.PauseSessionRequest(session=each))  # the prompt stays queued
    return {"session": sessions[0]}, {"session": sessions[1]}


async def ask_for_path(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    identity = await idle(client, daemon)
    forbids = session_pb2.UpdateSessionRequest(
        session_id=identity, session=session_pb2.Session(forbids=["docs/"]), update_mask=FieldMask(paths=["forbids"])
    )
    await client.sessions.UpdateSession(forbids)
    token = token_for(daemon, identity)
    return {"paths": ["docs/a"], "reason": "x"}, {"paths": ["docs/b"], "reason": "x"}, {"ramet-token": token}


async def hand_over(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    asked, _, who = await ask_for_path(client, daemon)
    rpc = RPCS["RequestPath"]
    made: Any = await rpc.call(client.channel, rpc.request(**asked), tuple(who.items()))
    return {"path_request_id": made.path_request_id}, {"path_request_id": made.path_request_id, "refuse": True}


async def make_rule(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    def fields(command: str) -> dict[str, Any]:
        allow = attention_pb2.RULE_EFFECT_ALLOW
        return {"repo": str(repo_of(daemon)), "effect": allow, "rule": f"Bash({command}:*)"}

    await idle(client, daemon)  # registers the repository
    return fields("ls"), fields("cat")


async def drop_rule(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made: list[Any] = []
    for command in ("du", "df"):
        allow = attention_pb2.RULE_EFFECT_ALLOW
        fields = {"repo": str(repo_of(daemon)), "effect": allow, "rule": f"Bash({command}:*)"}
        made.append(await RPCS["CreateRule"].call(client.channel, RPCS["CreateRule"].request(**fields)))
    return {"rule_id": made[0].rule.id}, {"rule_id": made[1].rule.id}


async def archived(client: Client, daemon: DaemonProcess) -> str:
    identity = await idle(client, daemon)
    await client.sessions.ArchiveSession(session_pb2.ArchiveSessionRequest(session=identity))
    return identity


async def restore(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"session": await archived(client, daemon)}, {"session": await archived(client, daemon)}


async def removed(client: Client, daemon: DaemonProcess) -> str:
    identity = await archived(client, daemon)
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session=identity))
    return identity


async def restore_trash(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"entry": await removed(client, daemon)}, {"entry": await removed(client, daemon)}


async def empty_trash(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"entries": [await removed(client, daemon)]}, {"entries": [await removed(client, daemon)]}


async def look_over(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"repo": await registered(client, daemon)}, {"repo": await registered(client, daemon)}


async def two_repositories(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"repo": await registered(client, daemon)}, {"repo": await registered(client, daemon)}


async def land(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made = [await with_work(client, repo_of(daemon), f"work-{uuid.uuid4().hex[:8]}") for _ in range(2)]
    return {"sessions": [made[0].id]}, {"sessions": [made[1].id]}


async def on_landing(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    """Return a preparation with landings that wait for a session that has not landed."""
    await with_work(client, repo_of(daemon), name := f"first-{uuid.uuid4().hex[:8]}")
    made = [await with_work(client, repo_of(daemon), f"later-{uuid.uuid4().hex[:8]}", after=[name]) for _ in range(2)]
    queued = await Landings(client).land(*(session.id for session in made))
    return {"landing": queued[0].id}, {"landing": queued[1].id}


async def stop_command(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    starting = RPCS["StartCommand"]
    sessions = [await idle(client, daemon) for _ in range(2)]
    requests = [starting.request(session=session, argv=("sleep", "600")) for session in sessions]
    started: list[Any] = [await starting.call(client.channel, request) for request in requests]
    return tuple({"command": each.command.id} for each in started)


def a_plan(daemon: DaemonProcess) -> dict[str, Any]:
    name = f"planned-{uuid.uuid4().hex[:8]}"
    text = f'[plan]\nname = "{name}"\n[[threads]]\nid = "{name}"\n'
    return {"path": str(repo_of(daemon)), "text": text}


async def apply_plan(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return a_plan(daemon), a_plan(daemon)


async def on_plan(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made = [await client.plans.ApplyPlan(plan_pb2.ApplyPlanRequest(**a_plan(daemon))) for _ in range(2)]
    return {"plan": made[0].plan_id}, {"plan": made[1].plan_id}


async def linked(client: Client, daemon: DaemonProcess) -> str:
    identity = await idle(client, daemon)
    await client.landing.LinkPullRequest(landing_pb2.LinkPullRequestRequest(session=identity, number=101))
    return identity


async def feed_back(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"session": await linked(client, daemon)}, {"session": await linked(client, daemon)}


async def open_pull(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    made = await client.create(repo_of(daemon), name=f"pulled-{uuid.uuid4().hex[:6]}")
    git(Path(made.worktree), "commit", "-q", "--allow-empty", "-m", "work")
    return {"session": made.id}, {"session": made.id, "title": "another"}


async def clean_up_pulls(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    return {"sessions": [await linked(client, daemon)]}, {"sessions": [await linked(client, daemon)]}


async def rewind(client: Client, daemon: DaemonProcess) -> tuple[dict[str, Any], ...]:
    waiting = [await idle(client, daemon), await idle(client, daemon)]
    for session in waiting:
        request = worktree_pb2.CreateCheckpointRequest(session=session)
        await client.worktrees.CreateCheckpoint(request, metadata=client.metadata)
    one, other = ({"session": session, "checkpoint": "1"} for session in waiting)
    return one, other


MUTATIONS: dict[str, Make] = {
    "ForkSession": on_session(),
    "SyncSession": on_session(),
    "CreateCheckpoint": on_session(),
    "RewindSession": rewind,
    "AddComment": on_session(path="dir0/file0.txt", line=1, text="why"),
    "ResolveComment": resolve_comment,
    "SendComments": send_comments,
    "ApplyPlan": apply_plan,
    "ConvergePlan": on_plan,
    "CleanUpPlan": on_plan,
    "StartCommand": on_session(argv=("true",)),
    "StopCommand": stop_command,
    "SetUpSession": on_session(),
    "LandSessions": land,
    "RemoveLanding": on_landing,
    "RetryLanding": on_landing,
    "SpawnSession": spawn,
    "SendMessage": on_session(text="hello"),
    "StopMember": on_session(),
    "ReportResult": report,
    "RequestPath": ask_for_path,
    "HandOverPath": hand_over,
    "CreateRule": make_rule,
    "DeleteRule": drop_rule,
    "CreateSession": create,
    "UpdateSession": update,
    "SendPrompt": send,
    "WithdrawPrompts": withdraw,
    "InterruptSession": on_session(),
    "StopSession": on_session(),
    "ResumeSession": on_session(),
    "PauseSession": on_session(),
    "DeleteSession": on_session(),
    "ArchiveSession": on_session(),
    "RestoreSession": restore,
    "RestoreTrash": restore_trash,
    "EmptyTrash": empty_trash,
    "CollectGarbage": look_over,
    "Diagnose": look_over,
    "RegisterRepo": register,
    "UpdateRepo": change_repo,
    "RemoveRepo": forget_repo,
    "ResolveRequest": resolve,
    "CreatePullRequest": open_pull,
    "LinkPullRequest": on_session(number=101),
    "FixPullRequest": feed_back,
    "CleanUpPullRequests": clean_up_pulls,
    "FillPool": two_repositories,
    "DrainPool": two_repositories,
}
