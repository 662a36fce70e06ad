"""Lists of sessions, cheap to ask for again: a message is made anew only where its session has changed."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ramet.v1 import session_pb2

from rametd.git import busy_with, existing_git_dir, fault_of
from rametd.services.views import session_message
from rametd.store import Reader
from rametd.store.sessions import SessionStamp

Key = tuple[SessionStamp, str, int, bool]
"""Everything that a message shows depends on these: the row, the repository's name, open requests, whether the agent lives. What that runs in the
background changes with an event of the session, and so with the row's stamp."""


def mark_gone(messages: Iterable[session_pb2.Session]) -> None:
    """Say of those whose directory is not there that it is gone, and what git has under way in the others. Blocks for a look at each; the
    messages are the caller's own."""
    for each in messages:
        archived = each.state == session_pb2.SESSION_STATE_ARCHIVED
        each.worktree_gone = not archived and not os.path.isdir(each.worktree)  # noqa: PTH112  of a thousand
        if archived or each.worktree_gone:
            each.under_way = each.worktree_fault = ""
            continue
        git_dir = existing_git_dir(Path(each.worktree))
        each.under_way = busy_with(git_dir) if git_dir is not None else ""
        each.worktree_fault = fault_of(
            Path(each.worktree), "" if each.under_way else each.branch
        )  # a rebase detaches HEAD


class SessionMessages:
    """Messages by session. Used in the store's reading threads; what it keeps is never changed, only replaced."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Key, session_pb2.Session]] = {}

    def of(self, reader: Reader, stamps: Sequence[SessionStamp]) -> list[session_pb2.Session]:
        """One message for each stamp, in their order."""
        repos = {repo.id: repo.name for repo in reader.repos.list()}
        counts = reader.requests.open_counts()
        alive = {agent.session_id: agent for agent in reader.agents.alive()}
        keys = {stamp.id: (stamp, repos[stamp.repo_id], counts.get(stamp.id, 0), stamp.id in alive) for stamp in stamps}
        known = {
            identity: kept[1]
            for identity, key in keys.items()
            if (kept := self._kept.get(identity)) is not None and kept[0] == key
        }
        for session in reader.sessions.get_many([identity for identity in keys if identity not in known]):
            _, repo, attention, _ = key = keys[session.id]
            message = session_message(session, repo=repo, attention=attention, agent=alive.get(session.id))
            self._kept[session.id] = (key, message)
            known[session.id] = message
        return [known[stamp.id] for stamp in stamps]

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        self._kept.pop(session_id, None)
