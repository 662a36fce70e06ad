"""Submodules of a new worktree, filled from what the user's checkout already has; the network is never asked."""

from pathlib import Path

from rametd.git.context import GitContext
from rametd.git.registrations import existing_git_dir

# Only local clones: a URL of any other kind is refused by git itself instead of being fetched from.
_LOCAL_ONLY = {"GIT_ALLOW_PROTOCOL": "file"}


async def populate_submodules(git: GitContext, source: Path | None, worktree: Path) -> tuple[str, ...]:
    """Populate in ``worktree`` each submodule that is populated in ``source``; a line for each that could not be.

    A linked worktree has submodule repositories of its own, so that git would clone each from its URL. Here the URL is overridden
    for one command by the git directory next door (git hard-links its objects), and the clone's origin is set right afterwards;
    the repository's configuration, which all worktrees share, is not written.
    """
    if source is None or not await git.compute((worktree / ".gitmodules").is_file):
        return ()
    warnings: list[str] = []
    for name, place in await _declared(git, worktree):
        local = await git.compute(existing_git_dir, source / place)
        if local is None:
            continue
        done = await git.process.run(
            worktree,
            *("-c", f"submodule.{name}.url={local}", "-c", f"submodule.{name}.active=true"),
            *("submodule", "--quiet", "update", "--init", "--checkout", "--no-recommend-shallow", "--", place),
            environment=_LOCAL_ONLY,
        )
        if done.returncode != 0 or await git.compute(existing_git_dir, worktree / place) is None:
            warnings.append(f"submodule {place} is not populated: {done.words}")
            continue
        await _restore_origin(git, local, worktree / place)
        warnings += await populate_submodules(git, source / place, worktree / place)
    return tuple(warnings)


async def _declared(git: GitContext, worktree: Path) -> list[tuple[str, str]]:
    done = await git.process.run(
        worktree, "config", "-z", "--file", str(worktree / ".gitmodules"), "--get-regexp", r"^submodule\..*\.path$"
    )
    entries = [entry.partition("\n") for entry in done.stdout.decode(errors="surrogateescape").split("\0") if entry]
    return [(key.removeprefix("submodule.").removesuffix(".path"), place) for key, _, place in entries]


async def _restore_origin(git: GitContext, local: Path, submodule: Path) -> None:
    origin = await git.process.run(submodule, f"--git-dir={local}", "config", "remote.origin.url")
    url = origin.stdout.decode(errors="surrogateescape").rstrip("\n")
    if url:
        await git.process.write(submodule, "remote", "set-url", "origin", url)
