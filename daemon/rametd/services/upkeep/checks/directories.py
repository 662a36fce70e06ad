"""Check directories: find unknown ones among the worktrees, sockets that are gone, and failing ways
of notification."""

import asyncio
import os
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path

from rametd.domain.models import Repo, Session
from rametd.domain.operations import Kind
from rametd.domain.text import listed
from rametd.git import TRASH, git_dir_of
from rametd.services.core import Core
from rametd.services.environments import gone_sockets, variables_of
from rametd.services.landing import trees
from rametd.services.notifications.ways import enabled
from rametd.services.upkeep.scene import (
    OURS_BY_FORM,
    Finding,
    Scene,
    folders_of_scene,
    is_of,
    is_set_by_hand,
    placed,
    places_of,
    roots,
    severity_at,
    shell,
)
from rametd.services.worktrees.places import LINKS


async def environments(core: Core, repo: Repo | None, checked: Counter[str]) -> AsyncIterator[Finding]:
    """Find sockets that are gone, by path: after a login has ended, all sessions miss the same
    one."""
    repo_id = repo.id if repo is not None else None
    sessions = await core.store.read(lambda reader: reader.sessions.list(repo_id=repo_id))
    checked["environments"] += len(sessions)
    gone: defaultdict[tuple[str, str], list[Session]] = defaultdict(list)
    for session in sessions:
        variables = await variables_of(core, session.id)
        for socket in await asyncio.to_thread(gone_sockets, variables):
            gone[socket].append(session)
    for (name, path), of in gone.items():
        message = f"{path}, the {name} of {listed([session.name for session in of])}, no longer exists"
        command = shell("rametctl", "set", of[0].name, "--env", name)
        advice = f"the next command for a session from a shell that has a living one brings it, as: {command}"
        yield Finding("info", "environment-socket-gone", name, of[0].id if len(of) == 1 else "", message, advice)


async def notifications(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    ways = enabled(core.config.notify)
    checked["ways of notification"] = len(ways)
    troubles = await core.store.read(lambda reader: reader.notifications.troubles())
    for way, trouble in troubles.items():
        if way in ways:
            advice = "correct its settings (`rametctl config show`), then: rametctl notify test"
            yield Finding("warning", "notification-failing", way, "", trouble.error, advice)


MANY = 5
"""Maximum number of findings in a configured root; more become one finding, because the directory
has other uses."""
ASIDE = re.compile(r"\.([a-z][a-z0-9]{7})\.(removing-\d+|shelved)")


async def directories(scene: Scene) -> AsyncIterator[Finding]:
    """Check the directories of one repository."""
    for found in await asyncio.to_thread(lambda: list(_beside(scene))):
        yield found


def _beside(scene: Scene) -> Iterator[Finding]:
    theirs = places_of(scene.sessions) | _registered(scene)
    for folder in folders_of_scene(scene):
        for path in _directories_in(folder):
            scene.checked["directories"] += 1
            aside = ASIDE.fullmatch(path.name)
            identity = aside[1] if aside else path.name
            if identity in scene.known or path.name == LINKS or trees.NAME.fullmatch(path.name):
                continue
            if placed(path) in theirs:
                continue
            elif aside and aside[2] == "shelved":
                # An entry of the trash, or a ref of one, which `refs` reports, has these files.
                if identity not in scene.trash and f"{TRASH}{identity}" not in scene.inventory.refs:
                    message = "it has the files of an archived or removed session that is gone"
                    yield Finding("warning", "directory-left", str(path), "", message, _move_or_delete(path))
            elif aside:
                message = "it is the rest of a removed worktree, whose deletion was interrupted; the trash has its work"
                advice = f"delete it: {shell('rm', '-rf', path)}"
                yield Finding("info", "directory-left", str(path), "", message, advice)
            else:
                yield _unknown(scene.core, path, describe_directory(path, scene.info.common_dir))
        for path in _files_in(folder):
            scene.checked["files"] += 1
            if placed(path) not in theirs:  # else it is in the place of a worktree, and `sessions` reports it
                yield _file(path)


def _registered(scene: Scene) -> set[Path]:
    return {placed(entry.path) for entry in scene.inventory.registrations if entry.path is not None}


async def root_directories(
    core: Core, repos: Iterable[Repo], scenes: Iterable[Scene], checked: Counter[str]
) -> AsyncIterator[Finding]:
    """Check the roots of worktrees."""
    # The worktree of the first session exists before the row of its repository.
    made = await core.store.read(
        lambda reader: [Path(each.data["worktree"]) for each in reader.operations.list(kinds=(Kind.CREATE,))]
    )
    for found in await asyncio.to_thread(lambda: list(_in_roots(core, list(repos), list(scenes), made, checked))):
        yield found


def _in_roots(
    core: Core, repos: list[Repo], scenes: list[Scene], made: list[Path], checked: Counter[str]
) -> Iterator[Finding]:
    places = [core.state_dir, *made, *(place for repo in repos for place in (repo.root, repo.common_dir))]
    known = {placed(place) for place in places}
    for scene in scenes:
        known |= places_of(scene.sessions) | _registered(scene)
    for root in roots(core):
        findings: list[Finding] = []
        for path in _directories_in(root):
            checked["directories"] += 1
            if any(is_of(repo, path) for repo in repos) or any(place.is_relative_to(placed(path)) for place in known):
                continue
            if OURS_BY_FORM.fullmatch(path.name) and not is_set_by_hand(core, path):
                findings.append(_orphaned(path))
            else:
                findings.append(_unknown(core, path, describe_directory(path, None)))
        for path in _files_in(root):
            checked["files"] += 1
            if placed(path) not in known:
                findings.append(_file(path))
        if len(findings) > MANY and is_set_by_hand(core, root):
            names = listed([Path(found.subject).name for found in findings], MANY)
            message = f"it has {len(findings)} entries that are not Ramet's: {names}"
            advice = "nothing to do; a `worktrees.root` that only Ramet uses keeps doctor quieter"
            yield Finding("info", "directory-unknown", str(root), "", message, advice)
        else:
            yield from findings


def _orphaned(path: Path) -> Finding:
    """Report the directory of an unregistered repository."""
    message = "it was for worktrees of a repository that is no longer registered"
    if is_empty(path):
        advice = "doctor --fix removes it: it is empty"
        return Finding(
            "info", "directory-unknown", str(path), "", message, advice, partial(asyncio.to_thread, path.rmdir)
        )
    return Finding("warning", "directory-unknown", str(path), "", message, _move_or_delete(path))


def _unknown(core: Core, path: Path, what: str) -> Finding:
    message = f"it is among Ramet's worktrees, but not Ramet's: it is {what}"
    return Finding(severity_at(core, path), "directory-unknown", str(path), "", message, _move_or_delete(path))


def _file(path: Path) -> Finding:
    message = "it is a file among Ramet's worktrees that Ramet did not create"
    advice = f"look at it: {shell('ls', '-l', path)}\nmove it away: {shell('mv', path)} NEW-PATH\ndelete it for good: {shell('rm', path)}"
    return Finding("info", "file-unknown", str(path), "", message, advice)


def _move_or_delete(path: Path) -> str:
    if is_empty(path):
        return f"delete it: {shell('rmdir', path)}"
    look = f"look into it: {shell('ls', '-la', path)}"
    return f"{look}\nmove it away: {shell('mv', path)} NEW-PATH\ndelete it for good: {shell('rm', '-r', path)}"


def describe_directory(path: Path, common_dir: Path | None) -> str:
    """Describe a directory. ``common_dir``: the git directory of the repository whose worktrees are
    beside it."""
    if is_empty(path):
        return "empty"
    if not os.access(path, os.R_OK | os.X_OK):
        return "another person's directory, which you may not read"
    if (path / ".git").is_dir():
        return "a separate repository"
    git_dir = git_dir_of(path)
    if git_dir is None:
        return "a plain directory"
    if git_dir.parent.parent != common_dir:
        return "a worktree of another repository"
    return "a worktree that git does not list here: its entry is gone, or it is a copy"


def is_empty(path: Path) -> bool:
    try:
        return next(path.iterdir(), None) is None
    except PermissionError:
        return False


def _directories_in(folder: Path) -> list[Path]:
    return [path for path in _entries_of(folder) if path.is_dir()]


def _files_in(folder: Path) -> list[Path]:
    return [path for path in _entries_of(folder) if not path.is_dir()]


def _entries_of(folder: Path) -> list[Path]:
    """Entries without symbolic links, which people may create."""
    try:
        return sorted(path for path in folder.iterdir() if not path.is_symlink())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
