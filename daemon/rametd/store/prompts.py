"""Prompts, from acceptance until the agent confirms them."""

import uuid
from collections.abc import Sequence

from rametd.domain.models import Prompt, PromptState
from rametd.store.rows import RowType, Table

PROMPTS = RowType(Prompt, "prompts")


class PromptReads(Table):
    def get(self, prompt_id: str) -> Prompt | None:
        return PROMPTS.find_one(self._db, "WHERE id = ?", prompt_id)

    def numbered(self, session_id: str, number: int) -> Prompt | None:
        """By its number, which, unlike its id, never changes (`Prompts.take_back`)."""
        return PROMPTS.find_one(self._db, "WHERE session_id = ? AND number = ?", session_id, number)

    def unsettled(self, session_id: str) -> list[Prompt]:
        """Prompts that have no result yet, in order."""
        return PROMPTS.find_all(
            self._db, "WHERE session_id = ? AND state <> 'cancelled' AND result = '' ORDER BY number", session_id
        )

    def open(self, session_id: str) -> list[Prompt]:
        """Prompts that no agent has confirmed, in order: `queued` and `sent` ones."""
        return PROMPTS.find_all(
            self._db, "WHERE session_id = ? AND state IN ('queued', 'sent') ORDER BY number", session_id
        )

    def queued(self, session_id: str) -> list[Prompt]:
        """Prompts that no agent was sent yet, in order."""
        return [each for each in self.open(session_id) if each.state == PromptState.QUEUED]

    def sent(self, session_id: str) -> list[Prompt]:
        """Prompts that an agent was sent and has not confirmed, in order."""
        return [each for each in self.open(session_id) if each.state == PromptState.SENT]

    def received(self, session_id: str) -> list[Prompt]:
        """Prompts that an agent confirmed, in order."""
        return [each for each in self.list(session_id) if each.state == PromptState.RECEIVED]

    def images(self, prompt_id: str) -> list[bytes]:
        """The images that go with a prompt, in order."""
        found = self._db.execute("SELECT data FROM prompt_images WHERE prompt_id = ? ORDER BY number", (prompt_id,))
        return [data for (data,) in found]

    def messages(self, session_id: str, *, limit: int = 100) -> list[Prompt]:
        """Messages between this session and others: the newest ``limit``, oldest first."""
        found = PROMPTS.find_all(
            self._db,
            "WHERE (session_id = ?1 AND source LIKE 'session:%') OR source = 'session:' || ?1"
            " ORDER BY create_time DESC, number DESC LIMIT ?2",
            session_id,
            limit,
        )
        return found[::-1]

    def count_messages(self, source: str, time: float) -> int:
        """How many messages of one principal were queued after ``time``; prompts without a hop do
        not count."""
        (count,) = self._db.execute(
            "SELECT count(*) FROM prompts WHERE source = ? AND create_time > ? AND hops > 0", (source, time)
        ).fetchone()
        return int(count)

    def list(self, session_id: str) -> list[Prompt]:
        """All prompts of a session, in order."""
        return PROMPTS.find_all(self._db, "WHERE session_id = ? ORDER BY number", session_id)


class Prompts(PromptReads):
    """Changes of state are compare-and-set: False means that the prompt had left the expected
    state."""

    def add(
        self,
        prompt_id: str,
        session_id: str,
        text: str,
        source: str,
        *,
        hops: int = 0,
        continues: bool = False,
        images: Sequence[bytes] = (),
    ) -> Prompt:
        """Queue a prompt behind the session's others."""
        (last,) = self._db.execute(
            "SELECT ifnull(max(number), 0) FROM prompts WHERE session_id = ?", (session_id,)
        ).fetchone()
        prompt = Prompt(
            prompt_id, session_id, last + 1, text, source, PromptState.QUEUED, 0, self._scope.now, None, hops, continues,
            images=len(images),
        )  # fmt: skip
        PROMPTS.add(self._db, prompt)
        rows = [(prompt_id, number, data) for number, data in enumerate(images)]
        self._db.executemany("INSERT INTO prompt_images (prompt_id, number, data) VALUES (?, ?, ?)", rows)
        return prompt

    def mark_sent(self, prompt_id: str, generation: int) -> bool:
        return self._change(
            "UPDATE prompts SET state = 'sent', generation = ? WHERE id = ? AND state = 'queued'", generation, prompt_id
        )

    def mark_received(self, prompt_id: str, turn: int) -> bool:
        return self._change(
            "UPDATE prompts SET state = 'received', receive_time = ?, turn = ? WHERE id = ? AND state IN ('queued', 'sent')",
            self._scope.now,
            turn,
            prompt_id,
        )

    def settle(self, session_id: str, turn: int, result: str) -> bool:
        """Store the result of an ended turn: for all prompts that the agent received in it, and in
        earlier turns that were cut off. Return whether there was one."""
        return self._change(
            "UPDATE prompts SET result = ? WHERE session_id = ? AND state = 'received' AND result = '' AND turn <= ?",
            result,
            session_id,
            turn,
        )

    def take_back(self, prompt_id: str) -> bool:
        """Queue again a sent prompt that its agent returned unread, under a new id: an agent
        ignores an id that it knows."""
        new_id = str(uuid.uuid5(uuid.NAMESPACE_OID, prompt_id))
        return self._change(
            "UPDATE prompts SET id = ?, state = 'queued', generation = 0 WHERE id = ? AND state = 'sent'",
            new_id,
            prompt_id,
        )

    def cancel(self, prompt_id: str) -> bool:
        """Cancel a queued prompt; the agent may have read a sent one."""
        return self._change("UPDATE prompts SET state = 'cancelled' WHERE id = ? AND state = 'queued'", prompt_id)

    def requeue_unreceived(self, session_id: str, generation: int) -> None:
        """Queue again, in their order, the prompts that a dead agent did not confirm."""
        self._db.execute(
            "UPDATE prompts SET state = 'queued', generation = 0 WHERE session_id = ? AND generation = ? AND state = 'sent'",
            (session_id, generation),
        )

    def _change(self, statement: str, *values: object) -> bool:
        return self._db.execute(statement, values).rowcount > 0
