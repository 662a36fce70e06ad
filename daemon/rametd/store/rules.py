"""Permission rules of repositories and sessions."""

from rametd.domain.models import Session, StoredRule
from rametd.store.rows import RowType, Table

RULES = RowType(StoredRule, "rules")


class RuleReads(Table):
    def get(self, rule_id: str) -> StoredRule | None:
        return RULES.find_one(self._db, "WHERE id = ?", rule_id)

    def applicable(self, session: Session) -> list[StoredRule]:
        """Rules of the session, and those of its repository for all agents or its own kind."""
        return RULES.find_all(
            self._db,
            "WHERE repo_id = ? AND session_id IN ('', ?) AND agent IN ('', ?) ORDER BY create_time, id",
            session.repo_id,
            session.id,
            session.agent,
        )

    def list(self, repo_id: str | None = None) -> list[StoredRule]:
        """Rules of a repository and its sessions, or all rules, in order of creation."""
        return RULES.find_all(self._db, "WHERE ?1 IS NULL OR repo_id = ?1 ORDER BY create_time, id", repo_id)


class Rules(RuleReads):
    def add(self, rule: StoredRule) -> StoredRule:
        """Store a rule unless an equal one exists for the repository, session and kind of agent;
        return the stored one."""
        self._db.execute(f"{RULES.insert} ON CONFLICT DO NOTHING", RULES.values(rule))
        found = RULES.find_one(
            self._db,
            "WHERE repo_id = ? AND session_id = ? AND agent = ? AND effect = ? AND text = ?",
            rule.repo_id,
            rule.session_id,
            rule.agent,
            rule.effect,
            rule.text,
        )
        return found or rule

    def matched(self, rule_id: str) -> None:
        """Count a tool call that the rule decided."""
        self._db.execute(
            "UPDATE rules SET matches = matches + 1, match_time = ? WHERE id = ?", (self._scope.now, rule_id)
        )

    def remove(self, rule_id: str) -> None:
        self._db.execute("DELETE FROM rules WHERE id = ?", (rule_id,))

    def remove_session(self, session_id: str) -> None:
        """Delete the rules of a session that was removed."""
        self._db.execute("DELETE FROM rules WHERE session_id = ?", (session_id,))
