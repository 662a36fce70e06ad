"""Undelivered notifications, and failing ways."""

from collections.abc import Iterable

from rametd.domain.notifications import Notification, Way, WayTrouble
from rametd.store.rows import RowType, Table

NOTIFICATIONS = RowType(Notification, "notifications")
TROUBLES = RowType(WayTrouble, "notification_troubles")
CURSOR = "notifications"


class NotificationReads(Table):
    def cursor(self) -> int | None:
        """Number of the last event whose notifications are queued; None before the first."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (CURSOR,)).fetchone()
        return None if row is None else int(row[0])

    def list(self, way: Way | None = None) -> list[Notification]:
        """Those of a way, or all, oldest first."""
        return NOTIFICATIONS.find_all(
            self._db, "WHERE ?1 IS NULL OR way = ?1 ORDER BY create_time, item, way", None if way is None else str(way)
        )

    def troubles(self) -> dict[Way, WayTrouble]:
        return {each.way: each for each in TROUBLES.find_all(self._db)}


class Notifications(NotificationReads):
    def set_cursor(self, seq: int | None) -> None:
        if seq is None:
            self._db.execute("DELETE FROM meta WHERE key = ?", (CURSOR,))
        else:
            self._db.execute("REPLACE INTO meta (key, value) VALUES (?, ?)", (CURSOR, str(seq)))

    def add(self, notification: Notification) -> None:
        """Queue a notification, unless its way has the item already."""
        self._db.execute(
            NOTIFICATIONS.insert.replace("INSERT", "INSERT OR IGNORE", 1), NOTIFICATIONS.values(notification)
        )

    def mark(self, notifications: Iterable[Notification], message: str) -> None:
        """Bind notifications to the message that is sent with them; "" releases them."""
        self._db.executemany(
            "UPDATE notifications SET message = ? WHERE item = ? AND way = ?",
            [(message, each.item, str(each.way)) for each in notifications],
        )

    def remove(self, notifications: Iterable[Notification]) -> None:
        self._db.executemany(
            "DELETE FROM notifications WHERE item = ? AND way = ?",
            [(each.item, str(each.way)) for each in notifications],
        )

    def set_trouble(self, trouble: WayTrouble) -> None:
        self.clear_trouble(trouble.way)
        TROUBLES.add(self._db, trouble)

    def clear_trouble(self, way: Way) -> None:
        self._db.execute("DELETE FROM notification_troubles WHERE way = ?", (str(way),))
