"""Directories and files where worktrees are made that nothing knows of. They may hold anybody's work: none is touched unless it is empty."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path

from rametd.domain.models import Repo
from rametd.domain.operations import Kind
from rametd.git import TRASH, git_dir_of
from rametd.services.core import Core
from rametd.services.landing import trees as landing_trees
from rametd.services.upkeep.finding import Finding, shell
from rametd.services.upkeep.ground import (
    OURS_BY_FORM,
    folders_of_scene,
    is_of,
    is_set_by_hand,
    placed,
    places_of,
    roots,
    severity_at,
)
from rametd.services.upkeep.scene import Scene
from rametd.services.words import listed
from rametd.services.worktrees.places import LINKS

MANY = 5
"""So many in one root that a person has chosen are told one by one; more of them are what that directory is for."""
ASIDE = re.compile(r"\.([a-z][a-z0-9]{7})\.(removing-\d+|shelved)")


async def directories(scene: Scene) -> AsyncIterator[Finding]:
    """Beside the worktrees of one repository."""
    for found in await asyncio.to_thread(lambda: list(_beside(scene))):
        yield found


def _beside(scene: Scene) -> Iterator[Finding]:
    theirs = places_of(scene.sessions) | _registered(scene)
    for folder in folders_of_scene(scene):
        for path in _directories_in(folder):
            scene.checked["directories"] += 1
            aside = ASIDE.fullmatch(path.name)
            identity = aside[1] if aside else path.name
            if identity in scene.known or path.name == LINKS or landing_trees.NAME.fullmatch(path.name):
                continue
            if placed(path) in theirs:
                continue
            elif aside and aside[2] == "shelved":
                # The files of an entry of the trash, or of a ref there, which `refs` reports.
                if identity not in scene.trash and f"{TRASH}{identity}" not in scene.inventory.refs:
                    message = "it has the files of a session that was archived or removed, and is no more"
                    yield Finding("warning", "directory-left", str(path), "", message, _move_or_delete(path))
            elif aside:
                message = (
                    "a worktree that was removed: what it held was kept first, and deleting the rest was cut short"
                )
                advice = f"delete it: {shell('rm', '-rf', path)}"
                yield Finding("info", "directory-left", str(path), "", message, advice)
            else:
                yield _unknown(scene.core, path, what_is(path, scene.info.common_dir))
        for path in _files_in(folder):
            scene.checked["files"] += 1
            if placed(path) not in theirs:  # else it lies where a session's worktree was, and is told with that
                yield _file(path)


def _registered(scene: Scene) -> set[Path]:
    return {placed(entry.path) for entry in scene.inventory.registrations if entry.path is not None}


async def root_directories(
    core: Core, repos: Iterable[Repo], scenes: Iterable[Scene], checked: Counter[str]
) -> AsyncIterator[Finding]:
    """Beside the folders of all repositories."""
    # The first session of a repository has its tree before the repository has a row.
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
                findings.append(_of_nobody(path))
            else:
                findings.append(_unknown(core, path, what_is(path, None)))
        for path in _files_in(root):
            checked["files"] += 1
            if placed(path) not in known:
                findings.append(_file(path))
        if len(findings) > MANY and is_set_by_hand(core, root):
            names = listed([Path(found.subject).name for found in findings], MANY)
            message = f"{len(findings)} things in it are not Ramet's: {names}"
            advice = "that is as you like it: `worktrees.root` may be a directory that Ramet has for itself"
            yield Finding("info", "directory-unknown", str(root), "", message, advice)
        else:
            yield from findings


def _of_nobody(path: Path) -> Finding:
    """A repository's folder whose repository was forgotten."""
    message = "it was made for worktrees of a repository that is not registered any more"
    if is_empty(path):
        advice = "doctor --fix removes it: it is empty"
        return Finding(
            "info", "directory-unknown", str(path), "", message, advice, partial(asyncio.to_thread, path.rmdir)
        )
    return Finding("warning", "directory-unknown", str(path), "", message, _move_or_delete(path))


def _unknown(core: Core, path: Path, what: str) -> Finding:
    message = f"nothing of Ramet's is in it, though worktrees are made beside it: it is {what}"
    return Finding(severity_at(core, path), "directory-unknown", str(path), "", message, _move_or_delete(path))


def _file(path: Path) -> Finding:
    message = "it is a file that Ramet did not make, where worktrees are made"
    advice = f"look at it: {shell('ls', '-l', path)}\nmove it away: {shell('mv', path)} NEW-PATH\ndelete it for good: {shell('rm', path)}"
    return Finding("info", "file-unknown", str(path), "", message, advice)


def _move_or_delete(path: Path) -> str:
    if is_empty(path):
        return f"delete it: {shell('rmdir', path)}"
    look = f"look into it: {shell('ls', '-la', path)}"
    return f"{look}\nmove it away: {shell('mv', path)} NEW-PATH\ndelete it for good: {shell('rm', '-r', path)}"


def what_is(path: Path, common_dir: Path | None) -> str:
    """In words, what a directory looks like; ``common_dir`` is that of the repository that it lies beside the worktrees of."""
    if is_empty(path):
        return "empty"
    if (path / ".git").is_dir():
        return "a repository of its own"
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
    """No links, which are for people to make."""
    try:
        return sorted(path for path in folder.iterdir() if not path.is_symlink())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
