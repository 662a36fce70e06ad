"""Submodules of a worktree: files follow the recorded commit, and an unpublished commit is not
pushed."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from rametd.domain.errors import RametError, WrongStateError
from rametd.git import Git, RepositoryInfo

from tests.support import repositories
from tests.support.closed import unprivileged_git
from tests.support.repositories import Sample

pytestmark = pytest.mark.full


@dataclass(frozen=True)
class Super:
    """A repository with the submodule `lib`, whose bare origin is beside it; ``tree`` is a
    session's worktree on `work`."""

    sample: Sample
    repo: RepositoryInfo
    tree: Sample
    first: str

    @property
    def lib(self) -> Path:
        return self.sample.path / "lib"

    def bump(self, *, push: bool = True) -> tuple[str, str]:
        """Commit in the person's submodule and record it on main; return the submodule's commit and
        main's."""
        self.sample.write("lib/src/app.py", "print('bumped')\n")
        inner = self.sample.commit("lib", at=self.lib)
        if push:
            self.sample.git("push", "-q", "origin", "HEAD:main", at=self.lib)
        return inner, self.sample.commit("bump")

    async def commit_all(self, git: Git) -> str:
        tree = self.tree.path
        made = await git.landing.commit_all(self.repo, tree, "work", "all", trusted=False, environment={})
        return made.commit

    def checked_out(self) -> str:
        return self.tree.git("rev-parse", "HEAD", at=self.tree.path / "lib")


@pytest.fixture
async def super_(git: Git, tmp_path: Path, environment: dict[str, str]) -> Super:
    source = repositories.plain(tmp_path / "lib-source", environment)
    source.git("clone", "-q", "--bare", str(source.path), str(tmp_path / "lib.git"))
    sample = repositories.plain(tmp_path / "super", environment)
    allow = ("-c", "protocol.file.allow=always")
    sample.git(*allow, "submodule", "--quiet", "add", str(tmp_path / "lib.git"), "lib")
    sample.commit("lib")
    repo = await git.discover(sample.path)
    git.trust(repo.common_dir)
    (tmp_path / "trees").mkdir()
    place = tmp_path / "trees" / "s-1"
    assert await git.worktrees.create(repo, place, "work", sample.head, new_branch=True) == ()
    return Super(sample, repo, Sample(place, environment), source.head)


async def sync(git: Git, super_: Super, commit: str, *, rebase: bool = False) -> tuple[str, ...]:
    tree = super_.tree.path
    synced = await git.syncing.sync(tree, "work", commit, rebase=rebase, message="base", source=super_.sample.path)
    assert synced.commits == 1
    return synced.warnings


@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
async def test_files_of_a_submodule_follow_a_sync(git: Git, super_: Super, rebase: bool, ahead: bool) -> None:
    if ahead:
        super_.tree.write("own")
        super_.tree.commit("own")
    inner, base = super_.bump()

    assert await sync(git, super_, base, rebase=rebase) == ()

    assert super_.checked_out() == inner
    assert (super_.tree.path / "lib/src/app.py").read_text() == "print('bumped')\n"
    assert super_.tree.git("status", "--porcelain") == ""
    super_.tree.write("f")
    tip = await super_.commit_all(git)
    assert super_.tree.git("diff", "--name-only", base, tip).splitlines() == (["f", "own"] if ahead else ["f"])


async def test_a_submodule_that_a_sync_adds_is_populated(git: Git, super_: Super, environment: dict[str, str]) -> None:
    url = super_.sample.git("config", "remote.origin.url", at=super_.lib)
    super_.sample.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "more")

    assert await sync(git, super_, super_.sample.commit("more")) == ()

    assert (super_.tree.path / "more/src/app.py").exists()


async def test_a_sync_that_was_cut_off_brings_the_files_too(git: Git, super_: Super) -> None:
    inner, base = super_.bump()
    old = super_.tree.head
    super_.tree.git("merge", "-q", "--ff-only", base)

    await git.syncing.settle(super_.tree.path, "work", old, base, super_.sample.path)

    assert super_.checked_out() == inner


def changed_in_the_way(super_: Super) -> None:
    super_.tree.write("lib/src/app.py", "mine\n")


def commits_of_its_own(super_: Super) -> None:
    super_.tree.write("lib/mine")
    super_.tree.commit("mine", at=super_.tree.path / "lib")


def nobody_has_the_commit(super_: Super) -> None:
    super_.lib.rename(super_.lib.with_name("elsewhere"))


@pytest.mark.parametrize("hindrance", [changed_in_the_way, commits_of_its_own, nobody_has_the_commit])
async def test_a_submodule_that_stays_behind_is_named_and_never_taken_back(
    git: Git, super_: Super, hindrance: object
) -> None:
    _, base = super_.bump()
    assert callable(hindrance)
    hindrance(super_)
    before = super_.checked_out()

    (warning,) = await sync(git, super_, base)

    assert warning.startswith("submodule lib stays behind the recorded commit")
    assert f"`git -C {super_.tree.path} submodule update -- lib`" in warning
    assert super_.checked_out() == before
    super_.tree.write("f")
    with pytest.raises(WrongStateError, match=r"1 submodule in .* would go back"):
        await super_.commit_all(git)
    assert super_.tree.git("rev-parse", "HEAD:lib") == super_.sample.git("rev-parse", "main:lib")


async def test_a_submodule_that_git_cannot_write_completely_is_unchanged(
    environment: dict[str, str], super_: Super, tmp_path: Path
) -> None:
    super_.sample.write("lib/first", "new\n")
    _, base = super_.bump()
    before, lib = super_.checked_out(), super_.tree.path / "lib"
    unprivileged_git(tmp_path)
    (lib / "src").chmod(0o555)
    git = Git({**environment, "PATH": f"{tmp_path}:{environment['PATH']}"}, threads=1)

    (warning,) = await sync(git, super_, base)

    assert "unable to unlink old 'src/app.py'" in warning
    assert super_.checked_out() == before
    assert super_.tree.git("status", "--porcelain", at=lib) == ""
    (lib / "src").chmod(0o755)
    await git.aclose()


async def test_a_submodule_that_went_forward_is_committed(git: Git, super_: Super) -> None:
    commits_of_its_own(super_)

    tip = await super_.commit_all(git)

    assert super_.tree.git("rev-parse", f"{tip}:lib") == super_.checked_out()


async def unpublished(git: Git, super_: Super, new: str) -> list[str]:
    main = super_.sample.git("rev-parse", "main")
    found = await git.landing.unpublished(super_.repo, super_.tree.path, super_.tree.git("merge-base", main, new), new)
    return [f"{each.place} {each.commit} {each.directory}" for each in found]


async def test_a_commit_of_a_submodule_that_only_the_session_has_is_unpublished(git: Git, super_: Super) -> None:
    commits_of_its_own(super_)
    tip, inner = super_.tree.commit("point"), super_.checked_out()

    assert await unpublished(git, super_, tip) == [f"lib {inner} {super_.tree.path / 'lib'}"]
    super_.sample.git("config", "push.recurseSubmodules", "no")
    assert await unpublished(git, super_, tip) == []
    super_.sample.git("config", "push.recurseSubmodules", "check")
    assert await unpublished(git, super_, tip) == [f"lib {inner} {super_.tree.path / 'lib'}"]
    super_.tree.git("push", "-q", "origin", f"{inner}:refs/heads/mine", at=super_.tree.path / "lib")
    assert await unpublished(git, super_, tip) == []


@pytest.mark.parametrize("pushed", ["refs/heads/mine", "refs/tags/v9"])
async def test_a_submodules_branch_is_pushed_on_demand_to_the_persons_own_remote(
    git: Git, super_: Super, tmp_path: Path, pushed: str
) -> None:
    commits_of_its_own(super_)
    lib, origin = super_.tree.path / "lib", super_.sample.git("remote", "get-url", "origin", at=super_.lib)
    super_.tree.git("checkout", "-q", "-b", "mine", at=lib)
    tip, inner = super_.tree.commit("point"), super_.checked_out()
    super_.tree.git("update-ref", pushed, inner, at=lib)
    super_.tree.git("symbolic-ref", "HEAD", pushed, at=lib)  # an agent may write any name there
    super_.sample.git("config", "push.recurseSubmodules", "on-demand")
    for name in ("evil.git", "outer.git"):
        super_.sample.git("init", "-q", "--bare", str(tmp_path / name))
    super_.tree.git("config", f"url.{tmp_path}/evil.git.pushInsteadOf", origin, at=lib)
    super_.sample.git("remote", "add", "origin", str(tmp_path / "outer.git"))

    is_branch = pushed.startswith("refs/heads/")
    with contextlib.nullcontext() if is_branch else pytest.raises(RametError):
        await git.remotes.push(
            *(super_.repo, "origin", "work", tip),
            ours=frozenset(),
            environment=super_.sample.environment,
            base=super_.sample.head,
            worktree=super_.tree.path,
            trusted=False,
        )

    assert super_.sample.git("for-each-ref", "--format=%(objectname)", pushed, at=Path(origin)) == (
        inner if is_branch else ""
    )
    assert super_.sample.git("branch", "--list", at=tmp_path / "evil.git") == ""


@pytest.mark.parametrize("includes", [False, True])
async def test_an_on_demand_push_logs_in_as_the_persons_submodule_is_configured(
    git: Git, super_: Super, tmp_path: Path, includes: bool
) -> None:
    commits_of_its_own(super_)
    lib, origin = super_.tree.path / "lib", super_.sample.git("remote", "get-url", "origin", at=super_.lib)
    super_.tree.git("checkout", "-q", "-b", "mine", at=lib)
    tip, inner = super_.tree.commit("point"), super_.checked_out()
    outer = tmp_path / "outer.git"
    super_.sample.git("init", "-q", "--bare", str(outer))
    super_.sample.git("remote", "add", "origin", str(outer))
    super_.sample.git("config", "push.recurseSubmodules", "on-demand")
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    super_.sample.git("remote", "set-url", "origin", f"ssh://host{origin}", at=super_.lib)
    super_.sample.git("config", "ssh.variant", "simple", at=super_.lib)
    super_.sample.git("config", "core.sshCommand", str(ssh), at=super_.lib)
    if includes:  # a file of the checkout, which an agent can land
        super_.sample.git("config", "include.path", "../../../lib/.gitconfig", at=super_.lib)

    with pytest.raises(RametError) if includes else contextlib.nullcontext():
        await git.remotes.push(
            *(super_.repo, "origin", "work", tip),
            ours=frozenset(),
            environment=super_.sample.environment,
            base=super_.sample.head,
            worktree=super_.tree.path,
            trusted=False,
        )

    assert super_.sample.git("for-each-ref", "--format=%(objectname)", "refs/heads/mine", at=Path(origin)) == (
        "" if includes else inner
    )


async def test_a_commit_that_the_local_url_of_a_submodule_has_is_published(git: Git, super_: Super) -> None:
    commits_of_its_own(super_)
    tip, inner = super_.tree.commit("point"), super_.checked_out()
    lib = super_.tree.path / "lib"
    super_.tree.git("push", "-q", "origin", f"{inner}:refs/heads/mine", at=lib)
    super_.tree.git("update-ref", "-d", "refs/remotes/origin/mine", at=lib)

    assert await unpublished(git, super_, tip) == []


async def test_a_branch_of_the_persons_own_submodule_is_no_remote(git: Git, super_: Super) -> None:
    """The session's submodule is cloned from the person's, so that `origin/main` there was a local
    branch."""
    inner, _ = super_.bump(push=False)
    super_.sample.git("checkout", "-q", "-B", "main", inner, at=super_.lib)
    place = super_.tree.path.with_name("s-2")
    await git.worktrees.create(super_.repo, place, "two", super_.sample.head, new_branch=True)

    found = await git.landing.unpublished(super_.repo, place, super_.tree.head, super_.sample.head)

    assert [(each.commit, each.directory) for each in found] == [(inner, super_.lib)]


async def test_a_commit_that_went_with_the_sessions_tree_is_unpublished(git: Git, super_: Super) -> None:
    commits_of_its_own(super_)
    tip = super_.tree.commit("point")
    super_.tree.path.rename(super_.tree.path.with_name("gone"))

    found = await git.landing.unpublished(super_.repo, super_.tree.path, super_.sample.head, tip)

    assert [each.directory for each in found] == [None]
    assert "restore the session" in found[0].hint


async def test_a_spare_gets_new_commits_of_a_submodule_without_its_own_filters_and_remote(
    git: Git, super_: Super, tmp_path: Path
) -> None:
    old = super_.sample.head
    spare = tmp_path / "trees" / "spare"
    await git.spares.make(super_.repo, spare, old)
    tree, mark = Sample(spare / "lib", super_.tree.environment), tmp_path / "ran"
    for key, value in (
        ("filter.evil.smudge", f"touch {mark}; cat"),
        ("filter.evil.clean", f"touch {mark}; cat"),
        ("remote.origin.uploadpack", f"touch {mark}; git-upload-pack"),
    ):
        tree.git("config", key, value)
    super_.sample.write("lib/.gitattributes", "* filter=evil\n")
    inner, commit = super_.bump(push=False)
    assert await git.spares.update(super_.repo, spare, old, commit, background=False) == ()
    assert tree.head == inner
    assert not mark.exists()
