"""Submodules: check out the commits that a worktree records, and find unpublished ones before a
push.

Commits come from the person's checkout, never from the network.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rametd.domain.errors import CheckoutIncompleteError, GitFailedError
from rametd.git.context import GitContext
from rametd.git.incomplete import check_out
from rametd.git.process import at
from rametd.git.registrations import existing_git_dir
from rametd.git.repository import RepositoryInfo

# Allow only local clones: git refuses any other URL instead of fetching from it.
_LOCAL_ONLY: Final = {"GIT_ALLOW_PROTOCOL": "file"}
_TRANSPORTS: Final = {"GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
_GITLINK: Final = "160000"
_PATH_KEY: Final = r"^submodule\..*\.path$"


@dataclass(frozen=True, slots=True)
class Link:
    """A submodule's recorded commit before and after a change; None if that side has no submodule
    at ``place``."""

    place: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A recorded submodule commit that no known remote branch of the submodule has. ``directory``:
    a checkout that has it, if any."""

    place: str
    commit: str
    directory: Path | None

    @property
    def words(self) -> str:
        return f"submodule {self.place} is at {self.commit[:12]}, which none of its known remote branches has: others could not check it out"

    @property
    def hint(self) -> str:
        if self.directory is None:
            return f"fetch {self.commit[:12]} in your checkout's {self.place}, or restore the session that made it; then try again"
        where = shlex.quote(str(self.directory))
        return (
            f"push it with `git -C {where} push origin {self.commit[:12]}:refs/heads/BRANCH`; if the remote has it already, "
            f"`git -C {where} fetch` is enough; then try again"
        )


async def populate_submodules(git: GitContext, source: Path | None, worktree: Path) -> tuple[str, ...]:
    """Check out in ``worktree`` each submodule that is populated in ``source``; return a line for
    each that failed.

    A linked worktree has its own submodule repositories, so git would clone each from its URL. A
    setting for this one command replaces the URL by the source's git directory, whose objects git
    hard-links; afterwards the clone gets its real origin. The repository's configuration, which all
    worktrees share, stays unchanged.
    """
    if source is None or not await git.compute((worktree / ".gitmodules").is_file):
        return ()
    warnings: list[str] = []
    for name, place in (await _declared(git, worktree)).items():
        warnings += await _populate(git, source, worktree, name, place)
    return tuple(warnings)


async def follow_submodules(
    git: GitContext, source: Path | None, worktree: Path, old: str, new: str
) -> tuple[str, ...]:
    """Update submodules of ``worktree`` from the commits in ``old`` to those in ``new``. Return a
    line for each that was not updated.

    Update only a submodule that is at its old commit; git refuses if uncommitted changes are in the
    way.
    """
    there = await _there(git, worktree)
    if there is None:
        return ()
    links = [link for link in await changed_links(git, worktree, there, old, new) if link.new is not None]
    names = {place: name for name, place in (await _declared(git, worktree)).items()} if links else {}
    warnings: list[str] = []
    for link in links:
        place, now = link.place, link.new
        directory, local = worktree / place, source / place if source is not None else None
        inner = await _there(git, directory)
        if inner is None:
            if local is not None and source is not None and place in names:
                warnings += await _populate(git, source, worktree, names[place], place)
            continue
        assert now is not None
        why = await _bring(git, local, directory, inner, link.old, now)
        if why:
            warnings.append(
                f"submodule {place} stays behind the recorded commit {now[:12]}: {why}; "
                f"`git -C {shlex.quote(str(worktree))} submodule update -- {shlex.quote(place)}` checks it out"
            )
        elif link.old is not None:
            warnings += await follow_submodules(git, local, directory, link.old, now)
    return tuple(warnings)


async def links_that_go_back(git: GitContext, worktree: Path, there: tuple[str, str]) -> tuple[str, ...]:
    """Return submodules whose checked-out commit does not contain the recorded one: committing
    everything would move them back."""
    output = await git.process.read(
        worktree, *there, "diff-files", "--raw", "-z", "--no-abbrev", "--ignore-submodules=dirty"
    )
    found = []
    for place, recorded in _moved(output):
        inner = await _there(git, worktree / place)
        if inner is None:
            continue
        contained = await git.process.run(worktree / place, *inner, "merge-base", "--is-ancestor", recorded, "HEAD")
        if contained.returncode != 0:
            found.append(place)
    return tuple(sorted(found))


async def changed_links(git: GitContext, where: Path, there: Iterable[str], old: str, new: str) -> list[Link]:
    """Return the submodules whose recorded commit differs between two commits."""
    output = os.fsdecode(
        await git.process.read(where, *there, "diff-tree", "--raw", "-r", "-z", "--no-abbrev", "--no-renames", old, new)
    )
    fields = output.split("\0")
    found = []
    for record, place in zip(fields[0::2], fields[1::2], strict=False):
        before, after, from_, to, _ = record.removeprefix(":").split(" ")
        if _GITLINK in {before, after}:
            found.append(Link(place, from_ if before == _GITLINK else None, to if after == _GITLINK else None))
    return found


async def unpublished(
    git: GitContext, repo: RepositoryInfo, tree: Path | None, old: str, new: str
) -> tuple[Unpublished, ...]:
    """Return submodule commits that ``new`` adds and no known remote branch of the submodule has.

    This checks the remote-tracking refs of the person's checkout, of the repository's own
    ``modules`` and of the session's ``tree``, and the submodule's URL if that is a local path.
    `push.recurseSubmodules=no` turns the check off, as in git.
    """
    links = [link for link in await changed_links(git, repo.common_dir, (), old, new) if link.new is not None]
    if not links or await push_mode(git, repo) == "no":
        return ()
    declared = await _declared_at(git, repo, new)
    found = []
    for link in links:
        homes = (repo.worktree_root, None if repo.is_bare else repo.root)
        places = [home / link.place for home in homes if home is not None]
        own = {place: await git.compute(existing_git_dir, place) for place in places}
        if name := declared.get(link.place):
            absorbed = repo.common_dir / "modules" / name
            own.setdefault(absorbed, absorbed if await git.compute((absorbed / "HEAD").is_file) else None)
        lone = await _lone(git, link, own, tree)
        if lone is not None:
            found.append(lone)
    return tuple(found)


async def push_submodule(
    git: GitContext, repo: RepositoryInfo, lone: Unpublished, environment: Mapping[str, str]
) -> bool:
    """Push a submodule's checked-out branch to its origin; return whether that published the
    commit.

    Fetch the commit into the person's checkout of the submodule and push from there: an agent can
    configure the session's copy.
    """
    theirs = await git.compute(existing_git_dir, lone.directory) if lone.directory is not None else None
    own = await _there(git, repo.root / lone.place)
    if theirs is None or own is None:
        return False
    head = await git.process.run(theirs, f"--git-dir={theirs}", "symbolic-ref", "--quiet", "HEAD")
    branch = os.fsdecode(head.stdout).strip()
    module = Path(own[0].removeprefix("--git-dir="))
    if branch.startswith("refs/heads/") and await _obtain(
        git, theirs, module, own, lone.commit
    ):  # its agent writes HEAD
        push = ("push", "--quiet", "--no-recurse-submodules", "--", "origin", f"{lone.commit}:{branch}")
        await git.process.run(
            module, *own, *push, environment={**environment, **_TRANSPORTS, **await _own_settings(git, module, own)}
        )
    return await _on_remote(git, module, lone.commit)


async def _own_settings(git: GitContext, module: Path, own: tuple[str, str]) -> Mapping[str, str]:
    """Return variables that let the configuration of the person's own submodule decide how git
    connects (`core.sshCommand`, `credential.helper`). Return none if it includes another file,
    which an agent may have written in the checkout.
    """
    included = await git.process.run(module, *own, "config", "--local", "--get-regexp", r"^include(if\..*)?\.path$")
    return {} if included.stdout else {"GIT_CONFIG_COUNT": "0"}  # instead of the replacements of `foreign`


async def push_mode(git: GitContext, repo: RepositoryInfo) -> str:
    """Return the person's `push.recurseSubmodules`, "" if unset."""
    done = await git.process.run(repo.standpoint, "config", "--get", "push.recurseSubmodules")
    return done.stdout.decode(errors="replace").strip()


async def _lone(git: GitContext, link: Link, own: Mapping[Path, Path | None], tree: Path | None) -> Unpublished | None:
    """Return the link if its new commit is unpublished, else None. ``own``: the person's git
    directories, by path.

    If the person's repository has the commit, its refs decide: the session's repository was cloned
    from it, so `origin/*` there are the person's branches.
    """
    commit = link.new or ""
    theirs = await git.compute(existing_git_dir, tree / link.place) if tree is not None else None
    session = {tree / link.place: theirs} if tree is not None else {}
    for directory, module in [*own.items(), *session.items()]:
        if module is not None and await _has(git, module, commit):
            return None if await _on_remote(git, module, commit) else Unpublished(link.place, commit, directory)
    if tree is not None and theirs is None and await git.compute(tree.is_dir):
        return None  # the session never had the submodule's files, so it did not create the commit
    return Unpublished(link.place, commit, None)


async def _has(git: GitContext, module: Path, commit: str) -> bool:
    done = await git.process.run(module, f"--git-dir={module}", "cat-file", "-e", f"{commit}^{{commit}}")
    return done.returncode == 0


async def _on_remote(git: GitContext, module: Path, commit: str) -> bool:
    there = at(module, module)
    refs = await git.process.run(module, *there, "for-each-ref", "--count=1", f"--contains={commit}", "refs/remotes")
    if refs.stdout.strip():
        return True
    url = os.fsdecode((await git.process.run(module, *there, "config", "remote.origin.url")).stdout).strip()
    path = _local_path(url)
    if path is None or not await git.compute(path.is_dir):
        return False
    done = await git.process.run(path, "for-each-ref", "--count=1", f"--contains={commit}")
    return bool(done.stdout.strip())


def _local_path(url: str) -> Path | None:
    """Return the local directory that a URL names, or None."""
    if url.startswith("file://"):
        return Path(unquote(urlsplit(url).path))
    return Path(url) if url.startswith("/") else None


async def _populate(git: GitContext, source: Path, worktree: Path, name: str, place: str) -> tuple[str, ...]:
    local = await git.compute(existing_git_dir, source / place)
    if local is None:
        return ()
    inner = await _there(git, worktree / place)
    if inner is not None:
        staged = await git.process.run(worktree, "rev-parse", "--verify", "--quiet", f":0:{place}")
        recorded = os.fsdecode(staged.stdout).strip()
        why = await _check_out(git, local, worktree / place, inner, recorded) if recorded else ""
        if why:
            return (f"submodule {place} is not at the recorded commit: {why}",)
        return await populate_submodules(git, source / place, worktree / place)
    try:
        done = await git.process.run(
            worktree,
            *("-c", f"submodule.{name}.url={local}", "-c", f"submodule.{name}.active=true"),
            *("submodule", "--quiet", "update", "--init", "--checkout", "--no-recommend-shallow", "--", place),
            environment=_LOCAL_ONLY,
        )
    except GitFailedError as error:  # a configuration that would run a program, or cannot be read
        return (f"submodule {place} is not populated: {error.message}",)
    if done.returncode != 0 or await git.compute(existing_git_dir, worktree / place) is None:
        return (f"submodule {place} is not populated: {done.words}",)
    await _restore_origin(git, local, worktree / place)
    return await populate_submodules(git, source / place, worktree / place)


async def _bring(
    git: GitContext, source: Path | None, directory: Path, inner: tuple[str, str], old: str | None, new: str
) -> str:
    """Check out ``new`` in a populated submodule; return why that failed, or ""."""
    head = await _said(git, directory, inner, "rev-parse", "--verify", "--quiet", "HEAD")
    if head == new:
        return ""
    if head != old:
        return f"it is at {head[:12]}, which was checked out in its worktree"
    local = await git.compute(existing_git_dir, source) if source is not None else None
    return await _check_out(git, local, directory, inner, new)


async def _check_out(git: GitContext, local: Path | None, directory: Path, inner: tuple[str, str], commit: str) -> str:
    """Check out a commit, which may exist only in the git directory ``local``. Return why that
    failed, or "".

    Do not use `git submodule update`: it would use remotes and filters of a configuration that an
    agent may have written.
    """
    if not await _obtain(git, local, directory, inner, commit):
        return "your checkout does not have that commit either"
    words = ("checkout", "--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", "--detach", commit)
    git_dir = await git.compute(existing_git_dir, directory)
    old = await _said(git, directory, inner, "rev-parse", "--verify", "--quiet", "HEAD")
    branch = await _said(git, directory, inner, "symbolic-ref", "--quiet", "--short", "HEAD")
    if git_dir is None or not old:
        done = await git.process.run(directory, *inner, *words)
    else:
        try:
            done = await check_out(git, directory, git_dir, branch or None, old, commit, words)
        except CheckoutIncompleteError as error:
            return error.message
    return "" if done.returncode == 0 else done.words


async def _said(git: GitContext, directory: Path, inner: tuple[str, str], *words: str) -> str:
    return os.fsdecode((await git.process.run(directory, *inner, *words)).stdout).strip()


async def _obtain(git: GitContext, local: Path | None, directory: Path, inner: tuple[str, str], commit: str) -> bool:
    """Return whether a submodule has a commit, after fetching it from the git directory ``local``
    if necessary."""
    has = (*inner, "cat-file", "-e", f"{commit}^{{commit}}")
    if (await git.process.run(directory, *has)).returncode == 0:
        return True
    if local is None:
        return False
    fetch = ("-c", "protocol.version=2", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", str(local), commit)
    await git.process.run(directory, *inner, *fetch, environment=_LOCAL_ONLY)
    return (await git.process.run(directory, *has)).returncode == 0


async def _there(git: GitContext, directory: Path) -> tuple[str, str] | None:
    """Return a repository's directory and git directory for git; None if ``directory`` has none."""
    git_dir = await git.compute(existing_git_dir, directory)
    return None if git_dir is None else at(git_dir, directory)


def _moved(output: bytes) -> Iterator[tuple[str, str]]:
    """Return paths and recorded commits of the submodules in the raw output of `git diff-files
    -z`."""
    fields = os.fsdecode(output).split("\0")
    for record, place in zip(fields[0::2], fields[1::2], strict=False):
        before, after, recorded, _, _ = record.removeprefix(":").split(" ")
        if before == after == _GITLINK:
            yield place, recorded


async def _declared(git: GitContext, worktree: Path) -> dict[str, str]:
    """Return the paths of submodules by name, from ``.gitmodules``."""
    return await _modules(git, worktree, "--file", str(worktree / ".gitmodules"))


async def _declared_at(git: GitContext, repo: RepositoryInfo, commit: str) -> dict[str, str]:
    """Return the names of submodules by path, from a commit's ``.gitmodules``."""
    places = await _modules(git, repo.common_dir, "--blob", f"{commit}:.gitmodules")
    return {place: name for name, place in places.items()}


async def _modules(git: GitContext, where: Path, *source: str) -> dict[str, str]:
    done = await git.process.run(where, "config", "-z", *source, "--get-regexp", _PATH_KEY)
    entries = [entry.partition("\n") for entry in os.fsdecode(done.stdout).split("\0") if entry]
    return {key.removeprefix("submodule.").removesuffix(".path"): place for key, _, place in entries}


async def _restore_origin(git: GitContext, local: Path, submodule: Path) -> None:
    origin = await git.process.run(submodule, f"--git-dir={local}", "config", "remote.origin.url")
    url = os.fsdecode(origin.stdout).rstrip("\n")
    if url:
        await git.process.write(submodule, "remote", "set-url", "origin", url)
