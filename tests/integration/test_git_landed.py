"""Detection of landed work by content, for every way and every author of the merge."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rametd.git import Git, Landed, RepositoryInfo

from tests.support import repositories
from tests.support.repositories import Sample

LINES = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def sample(tmp_path: Path, environment: dict[str, str]) -> Sample:
    sample = repositories.plain(tmp_path / "repo", environment)
    sample.write("long.txt", LINES)
    sample.commit("long")
    sample.git("checkout", "-q", "-b", "work")
    return sample


def edit(sample: Sample, line: int, text: str, file: str = "long.txt") -> None:
    lines = (sample.path / file).read_text().splitlines(keepends=True)
    lines[line] = f"{text}\n"
    (sample.path / file).write_text("".join(lines))


def two_commits(sample: Sample) -> None:
    edit(sample, 5, "first")
    sample.commit("first")
    sample.write("new.txt", "second\n")
    sample.commit("second")


async def ask(git: Git, repo: RepositoryInfo, sample: Sample, *, base_ref: str = "main", state: str = "") -> Landed:
    """Return whether the branch ``work``, which began at an earlier main, has landed."""
    base = sample.git("merge-base", "work", sample.git("rev-list", "-n1", "--grep=^long$", "--all"))
    targets = await git.landing.targets_of(repo, base_ref, "work")
    return await git.landing.landed(
        repo, sample.git("rev-parse", "work"), base, targets, pull_request_state=state or None
    )


async def test_a_fresh_branch_has_not_landed_though_the_base_holds_all_of_it(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    assert await ask(git, repo, sample) == Landed(False, "it has no commits of its own")

    sample.git("checkout", "-q", "main")
    sample.write("other.txt")
    sample.commit("main goes on")
    assert not await ask(git, repo, sample)


async def test_new_work_has_not_landed(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    two_commits(sample)
    assert await ask(git, repo, sample) == Landed(False, "main is still at its base")
    sample.git("checkout", "-q", "main")
    sample.write("other.txt")
    sample.commit("main goes on")
    assert await ask(git, repo, sample) == Landed(False, "main has not touched its files")
    edit(sample, 30, "elsewhere in the same file")
    sample.commit("same file")
    assert not await ask(git, repo, sample)


@pytest.mark.parametrize("way", [("--ff-only",), ("--no-ff", "-m", "merge")])
async def test_a_merge_and_a_fast_forward_are_landings(
    git: Git, repo: RepositoryInfo, sample: Sample, way: tuple[str, ...]
) -> None:
    two_commits(sample)
    sample.git("checkout", "-q", "main")
    sample.git("merge", "-q", *way, "work")
    assert await ask(git, repo, sample) == Landed(True, "merged into main")


def squash(sample: Sample) -> str:
    sample.git("checkout", "-q", "main")
    sample.git("merge", "-q", "--squash", "work")
    return sample.commit("squashed")


async def test_a_squash_merge_is_a_landing(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    two_commits(sample)
    squash(sample)
    assert await ask(git, repo, sample) == Landed(True, "its content is on main")


async def test_a_squash_merge_counts_when_its_lines_were_changed_again_since(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    two_commits(sample)
    made = squash(sample)
    edit(sample, 5, "changed again")
    sample.commit("later")
    assert await ask(git, repo, sample) == Landed(True, f"squash-merged into main as {made[:10]}")


async def test_a_squash_merge_among_other_peoples_lines_counts_when_it_was_changed_again(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    two_commits(sample)
    sample.git("checkout", "-q", "main")
    edit(sample, 8, "near enough to be in the context")
    sample.commit("neighbour")
    made = squash(sample)
    edit(sample, 5, "changed again")
    sample.commit("later")
    assert await ask(git, repo, sample) == Landed(True, f"squash-merged into main as {made[:10]}")


async def test_what_was_landed_and_reverted_has_landed_all_the_same(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    two_commits(sample)
    squash(sample)
    sample.git("revert", "--no-edit", "HEAD")
    assert await ask(git, repo, sample)


async def test_a_rebase_merge_is_a_landing_and_so_are_cherry_picks(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    two_commits(sample)
    sample.git("checkout", "-q", "main")
    sample.write("other.txt")
    sample.commit("main goes on")
    sample.git("cherry-pick", "work~1", "work")
    edit(sample, 5, "changed again")
    sample.write("new.txt", "this too\n")
    sample.commit("later")
    assert await ask(git, repo, sample) == Landed(True, "rebased onto main")


async def test_a_part_is_no_landing(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    two_commits(sample)
    sample.git("checkout", "-q", "main")
    sample.write("other.txt")
    sample.commit("main goes on")
    sample.git("cherry-pick", "work~1")
    assert await ask(git, repo, sample) == Landed(False, "1 of its 2 commits is on main")


async def test_commits_after_the_landing_have_not_landed(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    two_commits(sample)
    squash(sample)
    sample.git("checkout", "-q", "work")
    edit(sample, 20, "one thing more")
    sample.commit("third")
    assert not await ask(git, repo, sample)


async def test_empty_commits_are_no_work_and_do_not_hide_that_the_rest_has_landed(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    sample.git("commit", "-q", "--allow-empty", "-m", "nothing")
    assert not await ask(git, repo, sample)
    two_commits(sample)
    sample.git("commit", "-q", "--allow-empty", "-m", "nothing again")
    squash(sample)
    assert await ask(git, repo, sample)


async def test_a_change_that_was_taken_back_on_the_branch_has_not_landed(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    two_commits(sample)
    sample.git("revert", "--no-edit", "HEAD", "HEAD~1")
    sample.git("checkout", "-q", "main")
    sample.write("other.txt")
    sample.commit("main goes on")
    assert await ask(git, repo, sample) == Landed(False, "its commits change nothing")


async def test_a_branch_with_merges_of_the_base_lands_by_rebase_unless_they_hold_work(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    edit(sample, 5, "first")
    sample.commit("first")
    first = sample.head
    sample.git("checkout", "-q", "main")
    sample.write("other.txt")
    sample.commit("main goes on")
    sample.git("checkout", "-q", "work")
    sample.git("merge", "-q", "--no-ff", "-m", "sync", "main")
    plain = sample.head
    sample.git("checkout", "-q", "main")
    sample.git("cherry-pick", first)
    edit(sample, 5, "changed again")
    sample.commit("later")
    assert await ask(git, repo, sample)

    sample.git("checkout", "-q", "work")
    sample.write("smuggled.txt", "only in the merge\n")
    sample.git("add", "-A")
    sample.git("commit", "-q", "--amend", "--no-edit")
    assert sample.head != plain
    assert not await ask(git, repo, sample)


async def test_the_same_change_by_another_author_counts(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    two_commits(sample)
    sample.git("checkout", "-q", "main")
    two_commits(sample)
    sample.write("more.txt")
    sample.commit("and more")
    assert await ask(git, repo, sample)


async def test_a_binary_file_differs_from_another(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    sample.write("image", b"\0one")
    sample.commit("image")
    sample.git("checkout", "-q", "main")
    sample.write("image", b"\0two")
    sample.commit("image")
    assert not await ask(git, repo, sample)


async def test_a_mode_is_work_too(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    (sample.path / "long.txt").chmod(0o755)
    sample.commit("executable")
    sample.git("checkout", "-q", "main")
    edit(sample, 3, "text")
    sample.commit("text")
    assert not await ask(git, repo, sample)
    squash(sample)
    assert await ask(git, repo, sample)


async def test_a_renamed_target_is_found_as_the_branch_of_the_main_worktree(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    two_commits(sample)
    squash(sample)
    sample.git("branch", "-m", "main", "trunk")
    assert await ask(git, repo, sample) == Landed(True, "its content is on trunk")


async def test_the_remotes_copy_of_the_target_counts_before_the_local_one_has_it(
    git: Git, repo: RepositoryInfo, sample: Sample, tmp_path: Path
) -> None:
    two_commits(sample)
    sample.git("init", "-q", "--bare", str(tmp_path / "remote"))
    sample.git("remote", "add", "origin", str(tmp_path / "remote"))
    before = sample.git("rev-parse", "main")
    squash(sample)
    sample.git("push", "-q", "-u", "origin", "main")
    sample.git("reset", "-q", "--hard", before)
    assert await ask(git, repo, sample) == Landed(True, "its content is on origin/main")
    assert await ask(git, repo, sample, base_ref="origin/main")


async def test_a_base_that_is_left_only_on_the_remote_comes_after_the_default_branch(
    git: Git, repo: RepositoryInfo, sample: Sample
) -> None:
    """The parent's branch was merged and deleted, but the remote-tracking ref was not pruned."""
    two_commits(sample)
    sample.git("update-ref", "refs/remotes/origin/parent", "work")
    sample.git("branch", "-f", "main", "work")
    answers = [await ask(git, repo, sample, base_ref=base) for base in ("parent", "main")]
    assert answers == [Landed(True, "merged into main")] * 2
    sample.git("branch", "-f", "main", "work~2")
    assert await ask(git, repo, sample, base_ref="parent") == Landed(True, "merged into origin/parent")


async def test_a_merged_pull_request_is_a_landing(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    two_commits(sample)
    assert await ask(git, repo, sample, state="merged") == Landed(True, "its pull request was merged")
    assert not await ask(git, repo, sample, state="closed")


async def test_a_branch_does_not_land_on_itself(git: Git, repo: RepositoryInfo, sample: Sample) -> None:
    two_commits(sample)
    assert [target.name for target in await git.landing.targets_of(repo, "work", "work")] == ["main"]


steps = st.lists(
    st.tuples(
        st.sampled_from(("long.txt", "a/b.txt", "c d.txt", "ü.txt", 'q"uote.txt')),
        st.integers(0, 39),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(work=steps, meanwhile=steps, whole=st.booleans(), squashed=st.booleans(), later=st.booleans())
async def test_complete_work_has_landed_and_incomplete_work_has_not(
    git: Git,
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    work: list[tuple[str, int, int]],
    meanwhile: list[tuple[str, int, int]],
    *,
    whole: bool,
    squashed: bool,
    later: bool,
) -> None:
    """The target's own commits change other lines (a separate file), and later perhaps the same
    ones."""
    sample = repositories.plain(tmp_path_factory.mktemp("any") / "repo", environment)
    for name in ("long.txt", "a/b.txt", "c d.txt", "ü.txt", 'q"uote.txt', "main.txt"):
        sample.write(name, LINES)
    base = sample.commit("long")
    sample.git("checkout", "-q", "-b", "work")
    for number, (name, line, text) in enumerate(work):
        edit(sample, line, f"work {number} {text}", name)
        sample.commit(f"work {number}")
    tip = sample.head
    sample.git("checkout", "-q", "main")
    for number, (_, line, text) in enumerate(meanwhile):
        edit(sample, line, f"main {number} {text}", "main.txt")
        sample.commit(f"main {number}")
    brought = work if whole else work[:-1]
    if brought:
        if squashed:
            sample.git("merge", "-q", "--squash", f"work~{len(work) - len(brought)}")
            sample.commit("squash")
        else:
            sample.git("cherry-pick", f"main..work~{len(work) - len(brought)}")
    if later:
        for name, line, _ in brought:
            edit(sample, line, "later", name)
        sample.commit("later")
    info = await git.discover(sample.path)
    targets = await git.landing.targets_of(info, "main", "work")

    assert bool(await git.landing.landed(info, tip, base, targets)) == whole
