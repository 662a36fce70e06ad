"""archive, restore, rm, trash, gc and doctor, as a person types them."""

import json
from pathlib import Path

from tests.support.daemon import DaemonProcess, git


def test_what_is_under_way_in_a_tree_is_listed_in_words(daemon: DaemonProcess, repository: Path) -> None:
    made = daemon.sandbox.ctl("new", "--name", "busy", "--json", cwd=repository).json
    tree = Path(made["worktree"])
    git(tree, "bisect", "start")
    refused = daemon.sandbox.ctl("rm", "busy", cwd=repository)
    assert refused.code == 1
    assert "  under way: bisect\n" in refused.stderr


def test_every_message_says_what_happened_and_how_to_undo_it(daemon: DaemonProcess, repository: Path) -> None:
    def ctl(*arguments: str, code: int = 0) -> str:
        done = daemon.sandbox.ctl(*arguments, cwd=repository)
        assert done.code == code, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    made = json.loads(ctl("new", "--name", "fix", "--json"))
    tree = Path(made["worktree"])
    (tree / "only.txt").write_text("here\n")
    assert "to restore it: rametctl restore fix" in ctl("archive", "fix")
    assert not tree.exists()
    assert "restore it: `rametctl restore fix`" in ctl("send", "fix", "more", code=1)
    assert str(tree) in ctl("restore", "fix")
    assert "untracked: only.txt" in ctl("rm", "fix", code=1)
    assert "rametctl restore fix" in ctl("rm", "fix", "--force")
    assert "ramet/fix" in ctl("trash")
    assert [entry["name"] for entry in json.loads(ctl("trash", "ls", "--json"))] == ["fix"]
    assert str(tree) in ctl("trash", "restore", "fix")
    assert (tree / "only.txt").read_text() == "here\n"
    assert "1 untracked (only.txt)" in ctl("gc")
    assert json.loads(ctl("gc", "--yes", "--json"))[0]["removed"] is False
    ctl("gc", "--yes", "--dry-run", code=2)
    assert ctl("doctor").startswith("ok")
    ctl("rm", "fix", "--force")
    ctl("trash", "empty", code=2)
    assert "add --yes" in ctl("trash", "empty", "fix", code=2)
    assert "forgot 1 removed session" in ctl("trash", "empty", "--yes")
    assert "the trash is empty" in ctl("trash", "ls")
    assert not git(repository, "for-each-ref", "refs/ramet")

    made = json.loads(ctl("new", "--name", "two", "--json"))
    (Path(made["worktree"]) / ".git").unlink()
    assert "worktree-broken" in ctl("doctor", code=1)
    assert json.loads(ctl("doctor", "--fix", "--json", code=1))["findings"][0]["code"] == "worktree-broken"


def test_a_missing_worktree_is_shown_by_ls_and_show(daemon: DaemonProcess, repository: Path) -> None:
    ctl = daemon.sandbox.ctl
    tree = Path(ctl("new", "--name", "one", "--json", cwd=repository).json["worktree"])
    tree.rename(tree.with_name("away"))

    assert "tree gone, see: rametctl doctor" in ctl("ls", cwd=repository).stdout
    assert f"{tree} (tree gone, see: rametctl doctor)" in ctl("show", "one", cwd=repository).stdout
    assert ctl("show", "one", "--json", cwd=repository).json["worktree_gone"] is True
    tree.with_name("away").rename(tree)


def test_a_repository_is_trusted_in_one_step_though_it_has_no_session_yet(
    daemon: DaemonProcess, repository: Path
) -> None:
    (repository / ".ramet.toml").write_text('setup = ["true"]\n')
    done = daemon.sandbox.ctl("repo", "trust", "--yes", cwd=repository / "dir0")
    assert done.code == 0, done
    assert "trusted        yes" in done.stdout
    assert "true" in done.stdout
    assert daemon.sandbox.ctl("repo", "trust", "nowhere", "--yes", cwd=repository).code == 3
    assert daemon.sandbox.ctl("repo", "trust", "--yes", cwd=daemon.sandbox.root).code == 3


def test_a_refusal_names_what_was_meant(daemon: DaemonProcess, repository: Path) -> None:
    def ctl(*arguments: str, code: int) -> str:
        done = daemon.sandbox.ctl(*arguments, cwd=repository)
        assert done.code == code, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    tree = Path(json.loads(ctl("new", "--name", "one", "--json", code=0))["worktree"])
    assert "one has no checkpoint 99, and it is no ref" in ctl("diff", "one", "--against", "99", code=3)
    assert "no path that you named has changed" in ctl("diff", "one", "nonexistent", code=0)
    assert "the comment has no text" in ctl("comment", "one", "dir0/file0.txt:1", "", code=2)
    assert "counted from 1" in ctl("comment", "one", "dir0/file0.txt:0", "no", code=2)
    assert "`--base main` creates a branch from it" in ctl("new", "--existing", "main", code=1)
    ran = ctl("new", "--existing", "feat/x", code=3)
    assert ("--branch feat/x creates it" in ran, "--fetch" in ran) == (True, False)
    for place, words in ((tree, "mine"), (repository, "theirs")):
        (place / "both").write_text(words)
        git(place, "add", "-A")
        git(place, "commit", "-qm", words)
    ran = ctl("sync", "one", "--base", "main", "--rebase", code=1)
    assert "rametctl sync one --base main --rebase --ask-agent" in ran
    git(tree, "reset", "-q", "--hard", "HEAD^")
    ran = ctl("sync", "one", code=0)
    assert "merged 1 new commit of its base" in ran
    assert "to undo this: rametctl rewind one " in ran
