"""Things begun that span the database and the world."""

from rametd.domain.models import Intent
from rametd.store.rows import RowType, Table

INTENTS = RowType(Intent, "intents")


class IntentReads(Table):
    def list(self, session_id: str | None = None) -> list[Intent]:
        """Unfinished ones, the oldest first."""
        return INTENTS.read_all(
            self._db.execute(
                f"{INTENTS.select} WHERE ?1 IS NULL OR session_id = ?1 ORDER BY create_time, id", (session_id,)
            )
        )

    def get(self, intent_id: str) -> Intent | None:
        return INTENTS.read_one(self._db.execute(f"{INTENTS.select} WHERE id = ?", (intent_id,)))


class Intents(IntentReads):
    def add(self, intent: Intent) -> Intent:
        self._db.execute(INTENTS.insert, INTENTS.values(intent))
        return intent

    def remove(self, intent_id: str) -> None:
        """It is completed or undone; removing it twice is the same."""
        self._db.execute("DELETE FROM intents WHERE id = ?", (intent_id,))
