"""The guard: judges each call of an agent before it runs, by ownership and then by rules, in every
mode."""

import asyncio
import os
import posixpath
from pathlib import Path

from ramet.v1 import event_pb2

from rametd.agents.base import Judged, ToolUse
from rametd.domain.models import Mode, Session, StoredRule
from rametd.rules import Call, Effect, Rule, evaluate
from rametd.services import events
from rametd.services.core import Core
from rametd.services.ownership.claims import IGNORE_CASE, Foreign, claims_on
from rametd.services.trust.contents import runs, runs_by_link
from rametd.store import Unit

WRITES = {"Write": "file_path", "Edit": "file_path", "MultiEdit": "file_path", "NotebookEdit": "notebook_path"}
"""Tools that write a file, with the field that names it."""
LINKED = "links of the worktree lead to it"


async def judge(core: Core, session: Session, use: ToolUse) -> Judged:
    """Judge a call by ownership, then by the rules of repository and session. The result has no
    opinion if no rule matches."""
    refused = await refuse(core, session, use)
    if refused is not None:
        return refused
    asked = await ask_for_protected(session, use)
    stored = await core.store.read(lambda reader: reader.rules.applicable(session))
    if not stored:
        return asked

    def rule_of(each: StoredRule) -> Rule:
        return Rule(each.id, Effect(each.effect), each.text)

    call = Call(use.tool, use.input, session.worktree, Path(use.cwd) if use.cwd else None)
    rules = [rule_of(each) for each in stored]
    verdict = await asyncio.to_thread(evaluate, rules, call, home=core.home, ignore_case=IGNORE_CASE)
    if verdict.effect is None or verdict.rule is None:
        return asked
    if verdict.effect is Effect.ALLOW and asked.reason.endswith(LINKED):
        return asked  # the rule covers the name, wherever links lead
    rule_id = verdict.rule.id
    await core.store.write_for_sure(lambda unit: unit.rules.matched(rule_id), lifecycle=False)
    return Judged(verdict.effect.value, verdict.reason)


async def ask_for_protected(session: Session, use: ToolUse) -> Judged:
    """Ask before a write to files that decide which commands run, in every mode but
    bypassPermissions; no opinion on other calls."""
    named = use.input.get(WRITES.get(use.tool, ""))
    if session.mode == Mode.BYPASS or not isinstance(named, str):
        return Judged()
    written = posixpath.normpath(Path(use.cwd) / named)
    real, top = await asyncio.to_thread(lambda: (os.path.realpath(written), os.path.realpath(session.worktree)))
    inside = {below(written, str(session.worktree)), below(real, top)} - {None}
    if any(runs(path) or ".git" in path.casefold().split("/") for path in inside if path):
        return Judged("ask", f"{named} decides which commands run")
    if await asyncio.to_thread(runs_by_link, Path(top), real):
        return Judged("ask", f"{named} decides which commands run: {LINKED}")
    return Judged()


async def refuse(core: Core, session: Session, use: ToolUse) -> Judged | None:
    """Refuse a write outside the worktree, or to paths that the session may not write; None for any
    other call."""
    named = use.input.get(WRITES.get(use.tool, ""))
    if not isinstance(named, str) or not named:
        return None
    written = posixpath.normpath(Path(use.cwd) / (core.home / named[2:] if named.startswith("~/") else named))
    # Resolve links: a write follows them.
    real, top = await asyncio.to_thread(lambda: (os.path.realpath(written), os.path.realpath(session.worktree)))
    inside = below(real, top)
    if inside is None:
        own_places = core.kind(session.agent).own_places
        places = await asyncio.to_thread(own_places, core.daemon_environment, core.home)
        if any(below(real, str(place)) for place in places):
            return None
        words = f"{named} is outside your worktree, {session.worktree}. Write only inside it"
        if real != written:
            words = f"{named} leads to {real}, outside your worktree, {session.worktree}. Write only inside it"
        await record(core, session, use.tool, [Foreign(real, None, forbidden=False)], changed=False)
        return Judged("deny", f"{words}; other files are the person's.")
    names = dict.fromkeys((inside, below(written, str(session.worktree)) or inside))
    claims = await claims_on(core, session.id)
    foreign = claims.foreign(*names)
    if foreign is None:
        return None
    await record(core, session, use.tool, [foreign], changed=False)
    return Judged("deny", f"{foreign.why}. {advice(foreign)}")


def advice(foreign: Foreign) -> str:
    """Advice to the agent."""
    who = f"{foreign.owner.name!r}" if foreign.owner is not None else "the person"
    return (
        f"Do not write it in another way. If you need it, ask {who} with the tool request_path (paths and reason), "
        "and continue with something else meanwhile."
    )


def below(path: str, top: str) -> str | None:
    """``path`` relative to ``top``; None when it is not below it."""
    return path[len(top) + 1 :] if path.startswith(top.rstrip("/") + "/") else None


async def record(core: Core, session: Session, tool: str, found: list[Foreign], *, changed: bool) -> None:
    """Log paths that an agent tried to write, or has changed: one event for each owner."""

    def work(unit: Unit) -> None:
        log_paths(unit, session, tool, found, changed=changed)

    await core.store.write_for_sure(work, lifecycle=False)


def log_paths(unit: Unit, session: Session, tool: str, found: list[Foreign], *, changed: bool) -> None:
    by_owner: dict[str, list[str]] = {}
    for each in found:
        by_owner.setdefault(each.owner.id if each.owner is not None else "", []).append(each.path)
    for owner_id, paths in by_owner.items():
        payload = event_pb2.PathRefused(tool=tool, paths=paths, owner_id=owner_id, changed=changed)
        events.log(unit, session, payload)
