"""Unknown or invalid repositories, refs, sessions and names: one line that says what to do, and
nothing half created."""

import shutil
from pathlib import Path

import pytest

from tests.support.daemon import Sandbox, git
from tests.support.refusals import refused, unchanged


def test_nothing_can_be_created_outside_of_a_repository(box: Sandbox) -> None:
    with unchanged(box):
        refused(box.ctl("new", "work", cwd=box.root / "home"), 3, "no git repository", "--repo")


def test_a_repository_without_a_commit_is_refused(box: Sandbox) -> None:
    path = box.root / "unborn"
    path.mkdir(exist_ok=True)
    git(path, "init", "-q", "-b", "main")
    with unchanged(box, path):
        refused(box.ctl("new", "work", cwd=path), 1, "no commit", "git commit")


def test_a_detached_head_is_a_base_like_any_other(box: Sandbox) -> None:
    path = box.repository("detached")
    git(path, "checkout", "-q", "--detach")
    made = box.ctl("new", "--json", cwd=path)
    assert made.code == 0, made.stderr
    assert made.json["base_commit"] == git(path, "rev-parse", "HEAD")
    assert git(path, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"


def test_an_unknown_ref_is_named(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", "--base", "nowhere", "work", cwd=repo), 3, "'nowhere'")
        refused(box.ctl("new", "--existing", "nowhere", "work", cwd=repo), 3, "'nowhere'", "branches:")
        refused(box.ctl("new", "--base=--help", "work", cwd=repo), 3, "--help")


def test_a_branch_that_exists_is_not_taken_over(box: Sandbox, repo: Path) -> None:
    git(repo, "branch", "-f", "taken", "main")
    git(repo, "branch", "-f", "in/folder", "main")
    with unchanged(box, repo):
        refused(box.ctl("new", "--branch", "taken", "work", cwd=repo), 1, "taken", "exists")
        refused(box.ctl("new", "--branch", "in", "work", cwd=repo), 1, "in/folder")
        refused(box.ctl("new", "--branch", "taken/too", "work", cwd=repo), 1, "taken")


def test_a_branch_that_is_checked_out_elsewhere_is_refused_and_says_where(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", "--existing", "main", "work", cwd=repo), 1, "main", str(repo))


def test_a_repository_that_was_moved_away_can_be_listed_shown_and_cleaned_up(box: Sandbox) -> None:
    path = box.repository("moves")
    assert box.ctl("new", "--name", "orphan", cwd=path).code == 0
    tree = Path(box.ctl("show", "orphan", "--json").json["worktree"])
    shutil.move(path, box.root / "moved")
    assert "orphan" in [session["name"] for session in box.ctl("ls", "--all", "--json").json]
    assert box.ctl("show", "orphan").code == 0
    refused(box.ctl("new", "work", "--repo", str(path)), 3)
    refused(box.ctl("rm", "orphan"), 1, str(tree), "--force")
    removed = box.ctl("rm", "orphan", "--force")
    assert removed.code == 0, removed.stderr
    assert box.ctl("show", "orphan").code == 3
    assert tree.exists(), "its contents are saved nowhere"


@pytest.mark.parametrize(
    "verb", [["show"], ["rm"], ["log"], ["diff"], ["stop"], ["resume"], ["pause"], ["interrupt"], ["wait"]]
)
def test_an_unknown_session_is_no_such_thing(box: Sandbox, verb: list[str]) -> None:
    refused(box.ctl(*verb, "nobody"), 3, "'nobody'", "rametctl ls")


def test_an_unknown_session_is_no_such_thing_for_verbs_that_take_more(box: Sandbox) -> None:
    refused(box.ctl("send", "nobody", "hello"), 3, "'nobody'")
    refused(box.ctl("set", "nobody", "--priority", "1"), 3, "'nobody'")
    refused(box.ctl("approve", "nobody"), 3, "'nobody'")
    refused(box.ctl("new", "--after", "nobody", "work", cwd=box.root / "repo"), 3, "'nobody'")
    refused(box.ctl("new", "--parent", "nobody", "work", cwd=box.root / "repo"), 3, "'nobody'")


def test_a_name_in_two_repositories_is_ambiguous_from_elsewhere(box: Sandbox, repo: Path) -> None:
    other = box.repository("other")
    for path in (repo, other):
        assert box.ctl("new", "--name", "twice", cwd=path).code == 0
    refused(box.ctl("show", "twice"), 2, "several", "repo/twice", "other/twice")
    assert box.ctl("show", "other/twice").code == 0


NAMES = (
    "a/b",
    "a-b",
    "-dash",
    "x.lock",
    "..",
    "../up",
    "日本語",
    "🚀🚀",
    "with spaces",
    "HEAD",
    "a\tb",
    "@{u}",
    "ends.",
    "~^:?*[",
    "'quote\"",
)


def test_every_printable_name_is_stored_as_typed_and_none_collides(box: Sandbox) -> None:
    path = box.repository("names")
    good = [name for name in NAMES if name.isprintable()]
    made = [box.ctl("new", f"--name={name}", "--json", cwd=path) for name in good]
    assert [ran.stderr for ran in made if ran.code] == []
    sessions = [ran.json for ran in made]
    assert [session["name"] for session in sessions] == good
    trees = [Path(session["worktree"]) for session in sessions]
    root = (box.root / "state" / "worktrees").resolve()
    assert all(tree.resolve().is_relative_to(root) and tree.is_dir() for tree in trees)
    assert len(set(trees)) == len({session["branch"] for session in sessions}) == len(good)
    for session in sessions:
        git(path, "check-ref-format", f"refs/heads/{session['branch']}")
    for name in ("a/b", "-dash", "日本語"):
        found = box.ctl("show", "--json", "--", name, cwd=path)
        assert found.code == 0, (name, found.stderr)
    links = list((trees[0].parent / "by-name").iterdir())
    assert all(link.resolve().parent == trees[0].parent.resolve() for link in links)


def test_a_name_that_no_screen_could_show_is_refused(box: Sandbox, repo: Path) -> None:
    with unchanged(box, repo):
        for name in ("a\nb", "a\tb", "x" * 300, "   ", "\x1b[31m"):
            refused(box.ctl("new", f"--name={name}", "work", cwd=repo), 2, "invalid name", "printable")


def test_a_name_that_is_taken_is_refused(box: Sandbox, repo: Path) -> None:
    assert box.ctl("new", "--name", "once", cwd=repo).code == 0
    with unchanged(box, repo):
        refused(box.ctl("new", "--name", "once", "work", cwd=repo), 1, "once", "--name")


@pytest.mark.parametrize("branch", ["-x", "a..b", "x.lock", ".hidden", "a b", "HEAD", "a//b", "é\x7f", "@"])
def test_a_branch_name_that_git_would_not_take_is_refused(box: Sandbox, repo: Path, branch: str) -> None:
    with unchanged(box, repo):
        refused(box.ctl("new", f"--branch={branch}", "work", cwd=repo), 2, "cannot be a branch name")
