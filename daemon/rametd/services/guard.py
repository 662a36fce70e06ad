"""The guard: every call of every agent is judged by the rules before it is made."""

import asyncio
import sys

from rametd.agents.base import Judged, ToolUse
from rametd.domain.models import Session, StoredRule
from rametd.rules import Call, Effect, Rule, evaluate
from rametd.services.core import Core
from rametd.services.persistence import write_for_sure

IGNORE_CASE = sys.platform == "darwin"
"""Whether the usual file system of this platform takes Src and src for the same."""


async def judge(core: Core, session: Session, use: ToolUse) -> Judged:
    """What the rules of the repository and of the session say to a call; no rule, no opinion."""
    stored = await core.store.read(lambda reader: reader.rules.that_hold_for(session.repo_id, session.id))
    if not stored:
        return Judged()

    def rule_of(each: StoredRule) -> Rule:
        return Rule(each.id, Effect(each.effect), each.text)

    # Rules speak of the worktree, wherever in it the agent stands.
    call = Call(use.tool, use.input, session.worktree)
    rules = [rule_of(each) for each in stored]
    verdict = await asyncio.to_thread(evaluate, rules, call, home=core.home, ignore_case=IGNORE_CASE)
    if verdict.effect is None or verdict.rule is None:
        return Judged()
    rule_id = verdict.rule.id
    await write_for_sure(core.store, lambda unit: unit.rules.matched(rule_id), lifecycle=False)
    return Judged(verdict.effect.value, verdict.reason)
