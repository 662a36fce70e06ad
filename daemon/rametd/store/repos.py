"""Registered repositories."""

from pathlib import Path

from rametd.domain.errors import RepoNotFoundError, WrongStateError
from rametd.domain.models import Repo
from rametd.domain.trust import Contents, Trusted, digest_of, item_digest
from rametd.store.rows import RowType, Table, path_text

REPOS = RowType(Repo, "repos")


class RepoReads(Table):
    def get(self, repo_id: str) -> Repo:
        """Raises ``RepoNotFoundError``."""
        found = REPOS.find_one(self._db, "WHERE id = ?", repo_id)
        if found is None:
            raise RepoNotFoundError(
                f"there is no repository {repo_id!r}", hint="`rametctl repo ls` shows them", repo=repo_id
            )
        return found

    def by_common_dir(self, common_dir: Path) -> Repo | None:
        return REPOS.find_one(self._db, "WHERE common_dir = ?", path_text(common_dir))

    def by_name(self, name: str) -> list[Repo]:
        """Repositories of that name; several directories may share one."""
        return REPOS.find_all(self._db, "WHERE name = ? ORDER BY create_time", name)

    def trusted(self, repo_id: str) -> Trusted:
        """All items of a repository that the person has trusted."""
        rows = self._db.execute(
            "SELECT key, digest, text FROM trusted_items WHERE repo_id = ? ORDER BY trust_time", (repo_id,)
        ).fetchall()
        return Trusted(frozenset(digest for _, digest, _ in rows), {key: text for key, _, text in rows})

    def list(self) -> list[Repo]:
        """All repositories in order of registration."""
        return REPOS.find_all(self._db, "ORDER BY create_time, id")


class Repos(RepoReads):
    def upsert(self, repo: Repo) -> Repo:
        """Insert or update by common directory; a known repository keeps its id and trust. Return
        the stored one."""
        self._db.execute(
            f"{REPOS.insert} ON CONFLICT (common_dir) DO UPDATE SET name = excluded.name, root = excluded.root",
            REPOS.values(repo),
        )
        stored = self.by_common_dir(repo.common_dir)
        if stored is None:
            raise RepoNotFoundError(f"there is no repository {repo.id!r}", repo=repo.id)
        return stored

    def trust(self, repo_id: str, contents: Contents) -> Repo:
        """Trust ``contents`` in addition to earlier contents. Raises ``RepoNotFoundError``."""
        rows = [(repo_id, key, item_digest(key, text), text, self._scope.now) for key, text in contents.items()]
        self._db.executemany("INSERT OR REPLACE INTO trusted_items VALUES (?, ?, ?, ?, ?)", rows)
        self._db.execute("UPDATE repos SET trust_digest = ? WHERE id = ?", (digest_of(contents), repo_id))
        return self.get(repo_id)

    def distrust(self, repo_id: str) -> Repo:
        """Take back all trust. Raises ``RepoNotFoundError``."""
        self._db.execute("DELETE FROM trusted_items WHERE repo_id = ?", (repo_id,))
        self._db.execute("UPDATE repos SET trust_digest = '' WHERE id = ?", (repo_id,))
        return self.get(repo_id)

    def rename(self, repo_id: str, name: str) -> Repo:
        """Raises ``RepoNotFoundError``."""
        self._db.execute("UPDATE repos SET name = ? WHERE id = ?", (name, repo_id))
        return self.get(repo_id)

    def remove(self, repo_id: str) -> None:
        """Raises ``RepoNotFoundError``; ``WrongStateError`` while it has sessions or trash
        entries."""
        repo = self.get(repo_id)
        for noun, table in (("sessions", "sessions"), ("entries in the trash", "trash")):
            (count,) = self._db.execute(f"SELECT count(*) FROM {table} WHERE repo_id = ?", (repo_id,)).fetchone()  # noqa: S608
            if count:
                raise WrongStateError(
                    f"repository {repo.name} has {count} {noun}", hint="remove them first", repo=repo_id
                )
        self._db.execute("DELETE FROM repos WHERE id = ?", (repo_id,))
