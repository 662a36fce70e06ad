"""The guard: every call of every agent is judged by the rules before it is made."""

import asyncio
from pathlib import Path

from rametd.agents.base import Judged, ToolUse
from rametd.domain.models import Session, StoredRule
from rametd.rules import Call, Effect, Rule, evaluate
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure


async def judge(core: Core, session: Session, use: ToolUse) -> Judged:
    """What the rules of the repository and of the session say to a call; no rule, no opinion."""
    stored = await core.store.read(lambda reader: reader.rules.that_hold_for(session.repo_id, session.id))
    if not stored:
        return Judged()
    def rule_of(each: StoredRule) -> Rule:
        return Rule(each.id, Effect(each.effect), each.text)

    call = Call(use.tool, use.input, Path(use.cwd or session.worktree))
    verdict = await asyncio.to_thread(evaluate, [rule_of(each) for each in stored], call)
    if verdict.effect is None or verdict.rule is None:
        return Judged()
    rule_id = verdict.rule.id
    await write_for_sure(core.store, lambda unit: unit.rules.matched(rule_id), lifecycle=False)
    return Judged(verdict.effect.value, verdict.reason)
