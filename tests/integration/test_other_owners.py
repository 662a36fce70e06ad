"""Repositories of another owner: the hint of the refusal lets the daemon work in them, wherever the
person's git reads its configuration."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

OWNER, PERSON, GROUP = 45671, 45672, 45670
CREATE = """
import asyncio, os, sys
from pathlib import Path
from rametd.domain.errors import RametError
from rametd.git import Git
os.setgroups([])
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[2]))
async def main(start):
    git = Git(dict(os.environ))
    try:
        repo = await git.discover(Path(start))
        git.trust(repo.common_dir)
        base = await git.branches.resolve_base(repo, "main")
        tree = Path(os.environ["HOME"]) / "tree"
        await git.worktrees.create(repo, tree, "one", base.commit, new_branch=True)
        print((tree / "file").read_text())
    except RametError as error:
        print(error.hint)
    finally:
        await git.aclose()
asyncio.run(main(sys.argv[1]))
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two people")


@pytest.fixture
def place() -> Iterator[Path]:
    """Create a directory that others can enter, with a person's home and another one's repository,
    in which the person's group may write."""
    made = Path(tempfile.mkdtemp(prefix="ramet-owners-"))
    made.chmod(0o755)
    home, repository = made / "a home", made / "a repo"
    home.mkdir()
    os.chown(home, PERSON, GROUP)
    git = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-C", str(repository))
    subprocess.run(["git", "init", "-q", "--shared=group", "-b", "main", str(repository)], check=True)
    (repository / "sub").mkdir()
    (repository / "file").write_text("text")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    for path in (repository, *repository.rglob("*")):
        os.chown(path, OWNER, GROUP)
    yield made
    shutil.rmtree(made)


def become(place: Path, *command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=place,
        env={"PATH": os.environ["PATH"], "HOME": str(place / "a home"), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("start", ["a repo", "a repo/sub", "a repo/.git"])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="usual"),
        pytest.param({"GIT_CONFIG_GLOBAL": "{place}/other"}, id="global"),
        pytest.param({"GIT_CONFIG_GLOBAL": "/dev/null"}, id="none"),
        pytest.param({"XDG_CONFIG_HOME": "{place}/a home/xdg"}, id="xdg"),
    ],
)
def test_the_hint_names_what_lets_a_session_be_created(place: Path, start: str, config: dict[str, str]) -> None:
    environment = {name: value.format(place=place) for name, value in config.items()}
    if "XDG_CONFIG_HOME" in environment:
        (place / "a home/xdg/git").mkdir(parents=True)
        (place / "a home/xdg/git/config").touch()
        for path in (place / "a home").rglob("*"):
            os.chown(path, PERSON, GROUP)
    create = (sys.executable, "-c", CREATE, str(place / start), str(PERSON), str(GROUP))

    said = become(place, *create, environment=environment)
    hint = said[said.index("git config") :]

    setpriv = ("setpriv", f"--reuid={PERSON}", f"--regid={GROUP}", "--clear-groups")
    become(place, *setpriv, "sh", "-c", hint, environment=environment)
    assert become(place, *create, environment=environment) == "text"
    if "XDG_CONFIG_HOME" in environment:
        assert not (place / "a home/.gitconfig").exists(), "it would take precedence over the person's own file"
