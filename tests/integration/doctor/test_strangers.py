"""Things that people created by hand among Ramet's: reported, and not changed."""

import shutil
from pathlib import Path

import pytest
from ramet.v1 import session_pb2

from tests.support.daemon import Client, Sandbox, connected, daemon_here, git
from tests.support.doctor import codes, diagnose, follow, garbage, record_former_ids

pytestmark = pytest.mark.full


def strangers(repository: Path, folder: Path) -> dict[str, Path]:
    """Create things that a person may leave among the worktrees, beside a session's in
    ``folder``."""
    paths = {
        "by hand": folder / "by hand",
        "named like ours": folder / "aaaaaaa7",
        "in the root": folder.parent / "in-the-root",
        "plain": folder / "not an id",
        "empty": folder / "aaaaaaa8",
        "a repository": folder.parent / "stray",
    }
    for name in ("by hand", "named like ours", "in the root"):
        git(repository, "worktree", "add", "-q", "--detach", str(paths[name]))
    paths["plain"].mkdir()
    (paths["plain"] / "only.txt").write_text("here\n")
    paths["empty"].mkdir()
    paths["a repository"].mkdir()
    git(paths["a repository"], "init", "-q")
    for name, path in (("a file", folder / "a note.txt"), ("a file in the root", folder.parent / "note.txt")):
        path.write_text("mine\n")
        paths[name] = path
    (folder / "landing-0123456789").mkdir()  # named like a queue's worktree
    (folder / "link").symlink_to(repository)
    return paths


async def test_unknown_worktrees_and_directories_are_reported_and_unchanged(client: Client, repository: Path) -> None:
    folder = Path((await client.create(repository, name="lives")).worktree).parent
    await client.sessions.DeleteSession(
        session_pb2.DeleteSessionRequest(session=(await client.create(repository, name="gone")).id)
    )
    paths = strangers(repository, folder)

    found = await diagnose(client)

    assert codes(found) == {
        str(paths["by hand"]): ("worktree-foreign", "warning"),
        str(paths["named like ours"]): ("worktree-foreign", "warning"),
        str(paths["in the root"]): ("worktree-foreign", "warning"),
        str(paths["plain"]): ("directory-unknown", "warning"),
        str(paths["empty"]): ("directory-unknown", "warning"),
        str(paths["a repository"]): ("directory-unknown", "warning"),
        str(paths["a file"]): ("file-unknown", "info"),
        str(paths["a file in the root"]): ("file-unknown", "info"),
    }
    assert "it is a plain directory" in found[str(paths["plain"])].message
    assert f"mv '{paths['plain']}' NEW-PATH" in found[str(paths["plain"])].advice
    assert f"rametctl adopt '{paths['by hand']}'" in found[str(paths["by hand"])].advice
    assert found[str(paths["empty"])].advice == f"delete it: rmdir {paths['empty']}"
    assert "a separate repository" in found[str(paths["a repository"])].message
    assert f"rm '{paths['a file']}'" in found[str(paths["a file"])].advice
    assert not any(each.fixable for each in found.values())

    assert codes(await diagnose(client, fix=True)) == codes(found)
    assert all(path.exists() for path in paths.values())
    assert (paths["plain"] / "only.txt").exists()

    await client.create(paths["by hand"], adopt_path=str(paths["by hand"]), name="adopted")
    shutil.rmtree(paths["in the root"])
    now = await diagnose(client)
    assert str(paths["by hand"]) not in now
    assert codes(now)[str(paths["in the root"])] == ("registration-foreign", "info")
    assert "worktree prune" in now[str(paths["in the root"])].advice


async def test_worktrees_made_and_deleted_by_hand_are_reported_wherever_they_were(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    folder = Path((await client.create(repository, name="lives")).worktree).parent
    adopted = sandbox.root / "adopted"
    git(repository, "worktree", "add", "-q", "--detach", str(adopted))
    await client.create(adopted, adopt_path=str(adopted), name="adopted")
    gone = {
        "far off": sandbox.root / "far off",
        "locked": sandbox.root / "locked",
        "inside": folder / "by hand",
        "moved": sandbox.root / "moved",
    }
    for name, path in gone.items():
        git(repository, "worktree", "add", "-q", "-b", name.replace(" ", "-"), str(path))
    git(repository, "worktree", "lock", "--reason", "on a stick", str(gone["locked"]))
    git(repository, "worktree", "add", "-q", "--detach", str(sandbox.root / "there"))
    assert not {str(path) for name, path in gone.items() if name != "inside"} & set(await diagnose(client))
    gone["moved"].rename(sandbox.root / "elsewhere")
    for path in (*gone.values(), adopted):
        shutil.rmtree(path, ignore_errors=True)

    found = await diagnose(client, fix=True)

    expected = {str(path): ("registration-foreign", "info") for path in gone.values()}
    assert codes(found) == {**expected, "adopted": ("worktree-missing", "error")}
    assert (
        "a worktree of your own whose directory is gone; it holds branch far-off" in found[str(gone["far off"])].message
    )
    assert "it is locked: on a stick" in found[str(gone["locked"])].message
    assert "a worktree of your own in a directory of Ramet's" in found[str(gone["inside"])].message

    for name in ("far off", "locked"):
        await follow(sandbox, repository, found[str(gone[name])].advice, "unregister it")
    advice = found[str(gone["moved"])].advice.replace("NEW-PATH", str(sandbox.root / "elsewhere"))
    await follow(sandbox, repository, advice, "if you moved it")
    assert set(await diagnose(client)) == {str(gone["inside"]), "adopted"}
    await follow(sandbox, repository, found[str(gone["inside"])].advice, "unregister all missing ones")
    assert set(await diagnose(client)) == {"adopted"}
    assert git(sandbox.root / "elsewhere", "branch", "--show-current") == "moved"


async def test_foreign_refs_among_ramets_are_reported_and_unchanged(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="lives")
    foreign = ("refs/ramet/notes/mine", "refs/ramet/alone")
    for ref in foreign:
        git(repository, "update-ref", ref, "main")
    git(repository, "symbolic-ref", "refs/ramet/link/head", "refs/heads/main")

    found = await diagnose(client, fix=True)

    assert codes(found) == dict.fromkeys((*foreign, "refs/ramet/link/head"), ("ref-foreign", "info"))
    assert not set(found) & set(await garbage(client, dry_run=False))
    assert git(repository, "for-each-ref", "--format=%(refname)", *foreign).split() == sorted(foreign)
    for ref in foreign:
        await follow(sandbox, repository, found[ref].advice, "look at it")
        await follow(sandbox, repository, found[ref].advice, "delete it")
    assert set(await diagnose(client)) == {"refs/ramet/link/head"}


async def test_in_a_root_that_the_person_has_chosen_strangers_are_no_fault(sandbox: Sandbox) -> None:
    sandbox.configure(f'[worktrees]\nroot = "{sandbox.root}/mine"\n')
    repository = sandbox.repository("mine")  # it is in that root itself, as its state directory might be
    inner = sandbox.root / "mine" / "nested"
    inner.mkdir()
    async with daemon_here(sandbox), connected(sandbox) as client:
        folder = Path((await client.create(repository, name="lives")).worktree).parent
        own = {str(sandbox.root / "mine" / name) for name in ("dir0", "dir1", "dir2", ".git", "nested")}

        found = await diagnose(client)

        assert {subject: each.severity for subject, each in found.items()} == dict.fromkeys(
            own - {str(sandbox.root / "mine" / ".git")}, "info"
        )
        paths = strangers(repository, folder)
        (sandbox.root / "mine" / "more").mkdir()
        (sandbox.root / "mine" / "note.txt").touch()
        found = await diagnose(client)
        assert {each.severity for each in found.values()} == {"info"}
        root = found[str(sandbox.root / "mine")]  # one for many
        assert root.code == "directory-unknown"
        assert root.message == "it has 7 entries that are not Ramet's: dir0, dir1, dir2, more, nested, …"
        assert codes(found)[str(paths["by hand"])] == ("worktree-foreign", "info")


async def test_a_folder_of_a_repository_that_was_forgotten_goes_when_it_is_empty(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    await client.create(repository, name="lives")
    root = sandbox.root / "state" / "worktrees"
    for name in ("shop-aaaaaaa4", "shop-aaaaaaa5"):
        (root / name).mkdir(parents=True)
    (root / "shop-aaaaaaa5" / "x").write_text("work\n")

    found = await diagnose(client, fix=True)

    assert {Path(subject).name: (each.severity, each.fixed) for subject, each in found.items()} == {
        "shop-aaaaaaa4": ("info", True),
        "shop-aaaaaaa5": ("warning", False),
    }
    assert (root / "shop-aaaaaaa5" / "x").exists()
    assert not (root / "shop-aaaaaaa4").exists()


async def test_doctor_and_gc_agree_about_branches_of_removed_sessions(
    client: Client, sandbox: Sandbox, repository: Path
) -> None:
    record_former_ids(sandbox, "aaaaaaa4")
    folder = Path((await client.create(repository, name="lives")).worktree).parent
    await client.create(repository, name="binned")
    await client.sessions.DeleteSession(session_pb2.DeleteSessionRequest(session="binned"))
    git(repository, "branch", "ramet/binned")  # newer files there belong to a session that may be restored
    own = git(repository, "commit-tree", "-p", "main", "-m", "own work", "main^{tree}")
    for branch, start in (
        ("ramet/landed", "main"),
        ("ramet/own", own),
        ("custom/of-ours", "main"),
        ("ramet/at-work", "main"),
    ):
        message = f"ramet: made for {folder / 'aaaaaaa4'}"
        git(repository, "update-ref", "--create-reflog", "-m", message, f"refs/heads/{branch}", start)
    git(repository, "branch", "ramet/forgotten", own)
    git(repository, "branch", "mine")
    git(repository, "worktree", "add", "-q", str(repository.parent / "elsewhere"), "ramet/at-work")

    found = await diagnose(client)

    branches = ("ramet/landed", "ramet/own", "custom/of-ours", "ramet/forgotten")
    assert codes(found) == dict.fromkeys(branches, ("branch-unknown", "info"))
    assert "rametctl gc --yes --repo repo" in found["ramet/landed"].advice
    assert "named like a session's branch" in found["ramet/forgotten"].message
    git(repository, "branch", "-D", "ramet/forgotten")
    found = await diagnose(client, fix=True)
    assert "1 commit on no other branch" in found["ramet/own"].message
    assert f"git -C {repository} branch -D ramet/own" in found["ramet/own"].advice
    listed = {name: item.verdict for name, item in (await garbage(client)).items() if item.kind == "branch"}
    assert listed == {"ramet/landed": "orphaned", "custom/of-ours": "orphaned", "ramet/own": "kept"}
    assert {"ramet/own", "ramet/landed"} <= set(git(repository, "branch", "--format=%(refname:short)").split())
