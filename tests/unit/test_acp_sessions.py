"""Sessions of an agent that does not confirm prompts: after its death, and after an interrupt."""

import math
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from rametd.agents.acp import v1
from rametd.agents.acp.kind import Acp
from rametd.agents.base import Frame, ToolUse
from rametd.agents.presets import PRESETS
from rametd.config import Config
from rametd.domain.models import OWNER, Agent, PromptState, Session
from rametd.domain.states import State
from rametd.keeper.executor import Attachment
from rametd.services import sessions as module
from rametd.services.agents.conversation import Conversation
from rametd.services.agents.runner import project
from rametd.services.agents.supervisor import Supervisor
from rametd.services.core import Core, Policy
from rametd.services.hooks import SessionHooks
from rametd.services.lifecycle import change_state
from rametd.services.live import LiveAgent
from rametd.services.ownership import audit
from rametd.services.ownership.audit import Watch
from rametd.services.sessions import Sessions
from rametd.store import Unit
from rametd.store.rows import Scope
from rametd.store.schema import migrate, migrations

from tests.support.core import bare_core
from tests.support.rows import a_repo, a_session, an_agent

KINDS = {preset.name: Acp(preset, {}) for preset in PRESETS}
LOADED = v1.line(id="session:load:s", result={})


def user_chunk(text: str) -> bytes:
    update = {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}}
    return v1.line(method="session/update", params={"sessionId": "s", "update": update})


def frames(agent: Agent, *lines: bytes) -> list[Frame]:
    read, start, found = KINDS["codex"].reader(agent), 0, []
    for line in lines:
        found.append(read(start, start + len(line), line))
        start += len(line)
    return found


@pytest.mark.parametrize(
    ("history", "taken"),
    [
        (["earlier", "do it"], True),
        (["earlier", "[Ramet] Instructions.\n\ndo it"], True),
        (["do it", "earlier"], False),
        (["earlier"], False),
        ([], False),
    ],
)
def test_a_prompt_in_doubt_counts_as_taken_if_the_history_ends_with_it(history: list[str], taken: bool) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db, Path(":memory:"), migrations())
        unit = Unit(Scope(db))
        unit.repos.upsert(a_repo())
        unit.sessions.insert(a_session(agent="codex", state=State.STARTING, generation=2, conversation_begun=True))
        agent = an_agent(generation=2, initialize_reply=v1.State(load=True).dump())
        unit.agents.insert(agent)
        prompt = unit.prompts.add("p", "one", "do it", OWNER)
        answers = [line for text in history for line in (user_chunk(text), v1.line(method="session/update", params={}))]
        project(unit, "one", 2, frames(agent, *answers, LOADED), Policy(Config(), KINDS))
        now = unit.prompts.get(prompt.id)
        assert now is not None
        assert (now.state == PromptState.RECEIVED, unit.sessions.get("one").interrupted) == (taken, taken)


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[Core]:
    async with bare_core(tmp_path, {}, clock=lambda: 1.0) as core:
        core.kinds = KINDS
        yield core


class Launched:
    """Return a supervisor whose agents have all started."""

    async def settled(self, session_id: str) -> None:
        pass


class Cancelled:
    """Simulate an agent that has its prompt, has sent no update, and ends its turn at an
    interrupt."""

    session_id = "one"

    def __init__(self, core: Core) -> None:
        self._core = core

    async def interrupt(self) -> None:
        await self._core.store.write(lambda unit: change_state(unit, unit.sessions.get("one"), State.IDLE))


async def test_an_interrupt_does_not_wait_for_the_first_update(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROMPT_ARRIVES_S", math.inf)

    def begin(unit: Unit) -> None:
        unit.repos.upsert(a_repo())
        unit.sessions.insert(a_session(agent="codex", state=State.WORKING, generation=1))
        unit.agents.insert(an_agent())

    await core.store.write(begin)
    core.live.add(cast("LiveAgent", Cancelled(core)))
    assert await Sessions(core, cast("Supervisor", Launched())).interrupt("one") == (True, [])


async def test_a_call_is_watched_to_the_end_of_the_next_turn(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a turn's last call may come with that of the turn; a refused or cancelled call
    reports none."""
    await core.store.write(lambda unit: (unit.repos.upsert(a_repo()), unit.sessions.insert(a_session())))
    session, watch = a_session(), Watch(core)
    last, refused = (ToolUse("Bash", {"command": "true"}, "/", each) for each in ("last", "refused"))
    checked: list[str] = []

    async def checkout(core: Core, session: Session, use: ToolUse) -> str:
        checked.append(use.id)
        return ""

    monkeypatch.setattr(audit, "checkout_of", checkout)
    await watch.begin(session, last)
    await watch.begin(session, refused)
    watch.forget()
    checked.clear()
    assert await watch.end(session, last) == ""
    assert checked == ["last"]
    watch.forget()
    assert await watch.end(session, refused) == ""
    assert checked == ["last"]


async def test_a_call_that_cannot_be_judged_is_denied(core: Core) -> None:
    session = a_session()  # not stored
    conversation = Conversation(
        core, cast("SessionHooks", None), KINDS["codex"], session, an_agent(), cast("Attachment", None), lambda: None
    )
    assert (await conversation.guard(ToolUse("Bash", {"command": "true"}, "/", "call"))).effect == "deny"
