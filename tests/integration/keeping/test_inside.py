"""Repositories and worktrees inside a worktree: what they have is kept and comes back with it."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from rametd.domain.errors import WrongStateError
from rametd.git import Git, RepositoryInfo

from tests.support import repositories
from tests.support.repositories import Sample


async def test_commits_of_a_submodule_that_were_never_pushed_are_kept(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    tree.write("lib/made", "1\n")
    tree.git("add", "made", at=tree.path / "lib")
    tree.git("commit", "-q", "-m", "made", at=tree.path / "lib")
    inner = tree.git("rev-parse", "HEAD", at=tree.path / "lib")
    tree.git("commit", "-q", "-a", "-m", "the submodule went on")

    record = await git.archive(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)

    assert sample.git("merge-base", "--is-ancestor", inner, record.commit) == ""
    kept = await git.kept(repo, record.ref)
    assert kept is not None
    warnings = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False)
    assert (tree.path / "lib" / "made").read_text() == "1\n"
    assert any("never pushed" in words for words in warnings)
    sample.git("fsck", "--connectivity-only")


async def test_repositories_inside_the_worktree_are_trashed_too(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    tree.write("lib/deep/in a submodule of a submodule", "1\n")
    tree.git("init", "-q", "own")
    tree.write("own/uncommitted", "2\n")
    tree.git("worktree", "add", "-q", "-b", "side", "side")
    tree.write("side/uncommitted", "3\n")

    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=True)

    body = sample.git("log", "-1", "--format=%b", record.commit).splitlines()
    lines = [line.split(" ", 2) for line in body if line.startswith(("nested", "worktree"))]
    nested = {place: commit for _, commit, place in lines}
    assert sorted((word, place) for word, _, place in lines) == [
        ("nested", "lib/deep"),
        ("nested", "own"),
        ("worktree", "side"),
    ]
    assert sample.git("show", f"{nested['lib/deep']}:in a submodule of a submodule") == "1"
    assert sample.git("show", f"{nested['own']}:uncommitted") == "2"
    assert sample.git("show", f"{nested['side']}:uncommitted") == "3"
    assert set(nested.values()) <= set(sample.git("log", "-1", "--format=%P", record.commit).split())
    sample.git("fsck", "--connectivity-only")


@pytest.mark.parametrize("what", ["branch tag stash", "commit staged", "rebase"])
async def test_what_only_a_repository_inside_has_is_a_risk_and_comes_back_with_it(
    git: Git, tmp_path: Path, environment: dict[str, str], what: str
) -> None:
    sample, repo, tree = await with_a_submodule(git, tmp_path, environment)
    assert not await git.work_at_risk(repo, tree.path, "work", sample.head)
    lib = Sample(tree.path / "lib", environment)
    words = [make_something(lib, each) for each in what.split()]
    before = everything(lib)

    (line,) = (await git.work_at_risk(repo, tree.path, "work", sample.head)).inside
    assert line.startswith("what only the repository lib inside it has (")
    assert all(each in line for each in words)
    told, back = await put_away_and_bring_back(git, repo, tree)

    assert (told, back) == ((), ())
    assert everything(lib) == before
    assert status(tree, "lib/deep") == "## HEAD (no branch)"
    lib.git("fsck", "--connectivity-only")


async def test_a_shallow_submodule_has_nothing_of_its_own(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample, repo, tree = await with_a_submodule(git, tmp_path, environment)
    source = f"file://{sample.path / '.git' / 'modules' / 'lib'}"
    sample.git("config", "uploadpack.allowAnySHA1InWant", "true", at=sample.path / "lib")
    lib = Sample(tree.path / "lib", environment)
    recorded = lib.head
    ahead = sample.git("commit-tree", "-p", recorded, "HEAD^{tree}", "-m", "ahead", at=sample.path / "lib")
    sample.git("update-ref", "refs/heads/main", ahead, at=sample.path / "lib")
    tree.git("submodule", "--quiet", "deinit", "-f", "lib")
    at = Path(tree.git("rev-parse", "--path-format=absolute", "--git-path", "modules/lib"))
    shutil.rmtree(at)
    local = ("-c", "protocol.file.allow=always", "-c", f"submodule.lib.url={source}")
    tree.git(*local, "submodule", "--quiet", "update", "--init", "--depth=1")
    assert lib.git("rev-parse", "--is-shallow-repository") == "true"
    (sample.path / ".git" / "modules" / "lib").rename(sample.path / ".git" / "modules" / "moved")

    assert not await git.work_at_risk(repo, tree.path, "work", sample.head)
    assert (await git.trash(repo, "s-1", tree.path, "work")).git_dirs == ()


async def with_a_submodule(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> tuple[Sample, RepositoryInfo, Sample]:
    """A repository with the submodule `lib`, and a worktree of it."""
    sample = repositories.with_submodule(tmp_path / "sub", environment)
    repo = await git.discover(sample.path)
    (tmp_path / "trees").mkdir()
    tree = Sample(tmp_path / "trees" / "s-1", environment)
    await git.create_worktree(repo, tree.path, "work", sample.head, new_branch=True)
    return sample, repo, tree


def make_something(inner: Sample, what: str) -> str:
    """Something that only a repository has; what it is called."""
    if what == "branch":
        inner.git("switch", "-qc", "other")
        inner.commit(what)
        inner.git("switch", "-q", "--detach", "HEAD~1")
        return "branch other"
    if what in {"tag", "commit"}:
        inner.commit(what)
        if what == "tag":
            inner.git("tag", "v1")
            inner.git("switch", "-q", "--detach", "HEAD~1")
        return "tag v1" if what == "tag" else "commits that were never pushed"
    if what == "stash":
        for number in "12":
            inner.write("README.md", number)
            inner.git("stash", "-q")
        return "2 stashes"
    inner.write("README.md", "staged\n")
    if what == "rebase":
        inner.git("config", "rebase.autoStash", "true")
        inner.git("-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD~1")
        return "a rebase that is under way"
    inner.git("add", "README.md")
    inner.write("README.md", "later\n")
    return "what is staged of README.md"


def everything(inner: Sample) -> list[str]:
    asked = ("status --porcelain --branch", "for-each-ref", "log --all --format=%H", "diff", "diff --cached")
    at = Path(inner.git("rev-parse", "--absolute-git-dir"))
    under_way = sorted(path.name for path in at.glob("rebase-merge/*"))
    stashes = inner.git("stash", "list") if (at / "refs" / "stash").exists() else ""
    return [*(inner.git(*words.split()) for words in asked), stashes, *under_way]


async def put_away_and_bring_back(
    git: Git, repo: RepositoryInfo, tree: Sample, meanwhile: Callable[[], object] = lambda: None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What both tell."""
    record = await git.trash(repo, "s-1", tree.path, "work")
    assert record.unread == ()
    apart = tree.path.parent / "apart"
    await git.keep_git_dirs(record.git_dirs, apart)
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)
    meanwhile()
    kept = await git.kept(repo, record.ref)
    assert kept is not None
    back = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False, git_dirs=[apart])
    return record.skipped, back


def status(tree: Sample, place: str) -> str:
    return tree.git("status", "--porcelain", "--branch", "--untracked-files=all", at=tree.path / place)


@pytest.mark.parametrize(
    ("place", "detached"), [("side", False), ("deep/er", True), ("debug.log", False), ('odd \n"ü', True)]
)
async def test_a_worktree_inside_is_a_risk_and_told_of_and_comes_back_registered_as_it_was(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample, place: str, detached: bool
) -> None:
    tree.git("worktree", "add", "-q", *(["--detach"] if detached else ["-b", "mine"]), place)
    side = Sample(tree.path / place, tree.environment)
    side.commit("on its own")
    side.write("staged", "staged\n")
    side.git("add", "staged")
    side.write("staged", "then changed\n")
    side.write("untracked")
    (side.path / "empty").mkdir()
    head, before = side.head, status(tree, place)
    words = f"the worktree {place} inside it ({'with a detached HEAD' if detached else 'of branch mine'})"
    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    assert risk.inside == (words,)
    assert risk.untracked == (("deep/",) if place == "deep/er" else ())

    def gone() -> None:
        assert sample.git("worktree", "list").count("\n") == 0
        sample.git("-c", "gc.reflogExpire=now", "gc", "-q", "--prune=now")

    told, back = await put_away_and_bring_back(git, repo, tree, gone)

    assert told == (f"{words} goes with it, and comes back with it",)
    assert back == ()
    assert (side.head, status(tree, place)) == (head, before)
    assert side.git("show", ":staged") == "staged"
    assert (side.path / "empty").is_dir()
    assert "locked" not in sample.git("worktree", "list", "--porcelain").split(str(side.path))[1]
    side.git("worktree", "prune", "-v")
    sample.git("fsck", "--connectivity-only")


async def test_a_worktree_inside_whose_branch_went_on_comes_back_beside_it_and_says_how_to_take_it_up(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.git("worktree", "add", "-q", "-b", "mine", "side")
    was = sample.git("rev-parse", "mine")
    tree.write("side/work", "work\n")

    _, (words,) = await put_away_and_bring_back(
        git, repo, tree, lambda: sample.git("branch", "-f", "mine", f"{sample.head}~1")
    )

    assert words.startswith("in side: mine, which it had checked out, is not as it was")
    assert "`git switch mine`" in words
    assert tree.git("rev-parse", "HEAD", at=tree.path / "side") == was
    assert (tree.path / "side" / "work").read_text() == "work\n"


async def test_a_worktree_inside_that_cannot_be_registered_comes_back_as_files_with_the_command_that_makes_one(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    tree.git("worktree", "add", "-q", "-b", "mine", "side")
    tree.write("side/work", "work\n")
    tree.git("checkout", "-q", "--orphan", "unborn", at=tree.path / "side")

    _, (words,) = await put_away_and_bring_back(git, repo, tree)

    assert "`git worktree add PATH" in words
    assert (tree.path / "side" / "work").read_text() == "work\n"


async def test_what_is_inside_of_what_is_inside_comes_back_too_and_all_of_it_again_after_a_kill_in_the_middle(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    tree.git("worktree", "add", "-q", "-b", "outer", "outer")
    tree.git("worktree", "add", "-q", "-b", "inner", "outer/inner")
    tree.write("outer/inner/work", "work\n")
    repositories.unborn(tree.path / "outer" / "own", tree.environment).write("file", "file\n")
    record = await git.trash(repo, "s-1", tree.path, "work")
    await git.remove_worktree(repo, tree.path, "work", delete_branch=False)
    kept = await git.kept(repo, record.ref)
    assert kept is not None

    for _ in range(2):
        back = await git.revive(repo, tree.path, kept, "work", kept.branch_commit, new_branch=False)
        assert back == ("outer/own was a repository of its own: its files are back, its history is not",)
        assert (tree.path / "outer" / "own" / "file").read_text() == "file\n"
        assert status(tree, "outer/inner").splitlines() == ["## inner", "?? work"]
        # As where a kill came between an entry and its files.
        (tree.path / "outer" / "inner" / ".git").unlink()
    await git.undo_create(repo, tree.path, "work", None)
    assert sample.git("worktree", "list").count("\n") == 0


@pytest.mark.parametrize("where", ["recorded by hand", "in a worktree inside"])
async def test_the_files_of_a_clean_repository_come_back_with_its_git_directory(
    git: Git, tmp_path: Path, environment: dict[str, str], where: str
) -> None:
    sample, repo, tree = await with_a_submodule(git, tmp_path, environment)
    if where == "recorded by hand":
        place = "clone"
        tree.git("clone", "-q", str(sample.path), place)
        tree.git("-c", "advice.addEmbeddedRepo=false", "add", place)
    else:
        place = "side/lib"
        tree.git("worktree", "add", "-q", "-b", "mine", "side")
        at = str(sample.path / ".git" / "modules" / "lib")
        local = ("-c", "protocol.file.allow=always", "-c", f"submodule.lib.url={at}")
        tree.git(*local, "submodule", "--quiet", "update", "--init", at=tree.path / "side")
    inner = Sample(tree.path / place, environment)
    make_something(inner, "stash")
    before = everything(inner)

    _, back = await put_away_and_bring_back(git, repo, tree)

    assert back == ()
    assert everything(inner) == before
    assert (inner.path / "README.md").exists()


async def test_a_submodule_that_is_not_there_any_more_comes_back_with_what_only_it_had(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample, repo, tree = await with_a_submodule(git, tmp_path, environment)
    lib = Sample(tree.path / "lib", environment)
    lib.git("switch", "-qc", "mine")
    mine = lib.commit("on a branch")
    tree.git("rm", "-qf", "lib")
    tip = tree.commit("without")
    sample.git("branch", "elsewhere", tip)

    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    assert risk.inside == (
        "what only the submodule lib, which is not there any more, has (commits that were never pushed)",
    )
    assert await put_away_and_bring_back(git, repo, tree) == ((), ())

    at = tree.git("rev-parse", "--path-format=absolute", "--git-path", "modules/lib")
    assert tree.git(f"--git-dir={at}", f"--work-tree={at}", "rev-parse", "mine") == mine
    assert not (tree.path / "lib").exists()


async def test_files_in_the_place_of_a_submodule_that_is_not_filled_are_a_risk_and_come_back(
    git: Git, tmp_path: Path, environment: dict[str, str]
) -> None:
    sample, repo, tree = await with_a_submodule(git, tmp_path, environment)
    tree.git("submodule", "--quiet", "deinit", "-f", "lib")
    assert not await git.work_at_risk(repo, tree.path, "work", sample.head)
    tree.write("lib/deep er/file", "only here\n")
    own = repositories.unborn(tree.path / "lib" / "own", environment)
    own.write("file", "in a repository\n")

    assert (await git.work_at_risk(repo, tree.path, "work", sample.head)).untracked == ("lib/",)
    assert await put_away_and_bring_back(git, repo, tree) == ((), ())

    assert (tree.path / "lib" / "deep er" / "file").read_text() == "only here\n"
    assert own.git("status", "--porcelain") == "?? file"


async def test_a_repository_made_where_files_are_tracked_already_is_a_risk_and_comes_back(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    src = Sample(tree.path / "src", tree.environment)
    src.git("init", "-q")
    made = src.commit("all of it")

    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    assert risk.inside == ("what only the repository src inside it has (commits that were never pushed)",)
    assert await put_away_and_bring_back(git, repo, tree) == ((), ())

    assert (src.head, src.git("status", "--porcelain")) == (made, "")
    assert tree.git("status", "--porcelain") == ""


async def test_what_filters_of_a_repository_inside_have_stored_beside_it_comes_back(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    own = repositories.unborn(tree.path / "own", tree.environment)
    (own.path / ".git" / "store").mkdir()
    store = "git rev-parse --absolute-git-dir"
    own.git("config", "filter.apart.clean", f"sh -c 'tee $({store})/store/it | sha1sum'")
    own.git("config", "filter.apart.smudge", f"sh -c 'cat $({store})/store/it'")
    own.git("config", "filter.apart.required", "true")
    own.write(".gitattributes", "*.big filter=apart\n")
    own.write("a.big", "large\n")
    own.commit("large")

    assert await put_away_and_bring_back(git, repo, tree) == ((), ())

    assert (own.path / "a.big").read_text() == "large\n"


async def test_a_repository_inside_that_is_damaged_or_cannot_be_read_is_kept_with_its_files(
    git: Git, repo: RepositoryInfo, tree: Sample
) -> None:
    damaged = repositories.unborn(tree.path / "damaged", tree.environment)
    damaged.write("file", "1\n")
    (damaged.path / ".git" / "HEAD").unlink()
    newer = repositories.unborn(tree.path / "newer", tree.environment, "--object-format=sha256")
    newer.write("file", "2\n")
    commit = newer.commit("one")
    newer.write("file", "3\n")

    assert await put_away_and_bring_back(git, repo, tree) == ((), ())

    assert (damaged.path / ".git" / "config").exists()
    assert (damaged.path / "file").read_text() == "1\n"
    assert (newer.head, newer.git("status", "--porcelain")) == (commit, " M file")


async def test_what_was_put_aside_for_a_rebase_is_a_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    make_something(tree, "rebase")

    (words,) = (await git.work_at_risk(repo, tree.path, "work", sample.head)).inside

    assert words.startswith("what was uncommitted before a rebase that is under way (")


async def test_a_commit_of_everything_refuses_what_it_would_only_point_at(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    inner = tree.path / "vendor/lib"
    commit_all = partial(git.landing.commit_all, repo, tree.path, "work", "all of it", trusted=False, environment={})
    tree.write("vendor/lib/lib.c", "the only copy\n")
    for words in ("init -q -b main", "add -A", "commit -q -m inner"):
        tree.git(*words.split(), at=inner)
    for staged in (False, True):
        if staged:
            tree.git("add", "-A")
        with pytest.raises(WrongStateError, match="vendor/lib") as refused:
            await commit_all()
        assert refused.value.data["files"] == "vendor/lib"
        assert tree.git("diff", "--cached", "--name-only") == ("vendor/lib" if staged else "")
    tree.git("reset", "-q")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", "--force", str(inner), "vendor/lib")
    assert "160000" in tree.git("ls-tree", "-r", (await commit_all()).commit)


async def test_a_repository_inside_that_was_committed_as_a_mere_pointer_is_at_risk(
    git: Git, repo: RepositoryInfo, sample: Sample, tree: Sample
) -> None:
    inner = tree.path / "vendor/lib"
    tree.write("vendor/lib/lib.c", "the only copy\n")
    for words in ("init -q -b main", "add -A", "commit -q -m inner"):
        tree.git(*words.split(), at=inner)
    tree.git("add", "-A")
    tree.git("commit", "-q", "-m", "all of it")
    sample.git("merge", "-q", "work")
    risk = await git.work_at_risk(repo, tree.path, "work", sample.head)
    assert risk.inside == ("what only the repository vendor/lib inside it has (commits that were never pushed)",)
