"""Random edits of every kind that ever made the tracker's tree differ from a scan's."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rametd.git.context import GitContext
from rametd.git.snapshots.capture import capture
from rametd.git.snapshots.model import CHECKPOINTS
from rametd.git.tracking import tracker as trackers

from tests.support import repositories
from tests.support.repositories import Sample
from tests.support.tracked import exchange, scanned

NAMES = st.sampled_from(
    [
        "a",
        "b.log",
        "dir",
        "dir/a",
        "dir/b.log",
        "dir/sub",
        "dir/sub/a",
        "other/a",
        "other/.gitignore",
        ".gitignore",
        "x y",
        "dir/.gitattributes",
        os.fsdecode(b"dir/caf\xe9"),
    ]
)
REFUSED = st.sampled_from(["git~1", "dir/.GIT", ".git.", "dir/sub/.Git/x"])
DIRECTORIES = st.sampled_from(["dir", "dir/sub", "other"])
ATTRIBUTES = st.sampled_from(
    ["a filter=up\n", '"x y" filter=up\n', "* big\n[attr]big filter=up\n", "b.log ident\n", "* text=auto\n", ""]
)
STEPS = st.one_of(
    st.tuples(
        st.just("write"), NAMES, st.sampled_from(["1\n", "2\n", "*.log\n", "sub/\n", "!b.log\na\n", "x\r\n", ""])
    ),
    st.tuples(st.just("remove"), NAMES, st.just("")),
    st.tuples(st.just("move"), NAMES, NAMES),
    st.tuples(st.just("link"), NAMES, NAMES),
    st.tuples(st.just("mode"), NAMES, st.just("")),
    st.tuples(st.just("mkdir"), NAMES, st.just("")),
    st.tuples(st.just("git"), st.sampled_from(["add -A", "add -f", "commit", "reset", "rm"]), NAMES),
    st.tuples(st.just("nest"), DIRECTORIES, st.sampled_from(["", "commit"])),
    st.tuples(st.just("write"), REFUSED, st.just("1\n")),
    st.tuples(st.just("remove"), REFUSED, st.just("")),
    st.tuples(st.just("write"), st.sampled_from([".gitattributes", "dir/.gitattributes"]), ATTRIBUTES),
    st.tuples(st.just("exchange"), NAMES, NAMES),
    st.tuples(st.just("hard link"), NAMES, NAMES),
    st.tuples(st.just("append"), NAMES, st.just("more\n")),
    st.tuples(st.just("touch"), st.sampled_from([".git", "a", "dir/a"]), st.just("")),
    st.tuples(st.just("out"), DIRECTORIES, st.just("")),
    st.tuples(st.just("in"), DIRECTORIES, st.just("")),
    st.tuples(st.just("look"), st.just(""), st.just("")),
    st.tuples(st.just("read"), st.just(""), st.just("")),  # or events would wait in the queue for the next read
    st.tuples(st.just("meanwhile"), NAMES, st.sampled_from(["1\n", "*.log\n"])),
    st.tuples(st.just("scaffold"), DIRECTORIES, st.sampled_from(["*.log\n", "sub/\n", ""])),
)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def act(sample: Sample, kind: str, name: str, more: str) -> None:
    """Make one random step; an impossible one does nothing."""
    path = sample.path / name
    try:
        match kind:
            case "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(more, newline="")
            case "remove":
                remove(path)
            case "move":
                (sample.path / more).parent.mkdir(parents=True, exist_ok=True)
                path.rename(sample.path / more)
            case "link":
                remove(path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(sample.path / more)
            case "exchange":
                exchange(path, sample.path / more)
            case "hard link":
                remove(sample.path / more)
                os.link(path, sample.path / more)
            case "append":
                with path.open("a") as file:
                    file.write(more)
            case "touch":
                os.utime(path)
            case "out":  # with its rules
                path.rename(sample.path.parent / f"out{len(list(sample.path.parent.iterdir()))}")
            case "in":
                next(sample.path.parent.glob("out*")).rename(path)
            case "scaffold":
                (path / "made/below").mkdir(parents=True)
                (path / "made/below/a").write_text(more)
            case "mode":
                path.chmod(0o755)
            case "mkdir":
                path.mkdir(parents=True, exist_ok=True)
            case "nest":
                nest(sample, path, more)
            case "git":
                git_step(sample, name, more)
    except (OSError, StopIteration):
        pass


def nest(sample: Sample, path: Path, more: str) -> None:
    """Create a nested repository, with or without a commit; git refuses to add one that contains
    another without."""
    path.mkdir(parents=True, exist_ok=True)
    for words in ("init -q", "add -A", "commit -q -m inner --allow-empty") if more else ("init -q",):
        subprocess.run(
            ["git", *words.split()], cwd=path, env=dict(sample.environment), capture_output=True, check=False
        )


def git_step(sample: Sample, verb: str, path: str) -> None:
    words = {
        "add -A": "add -A",
        "add -f": "add -f --",
        "commit": "commit -qam work --allow-empty",
        "reset": "reset -q HEAD",
        "rm": "rm -q -r --cached -f --ignore-unmatch --",
    }[verb].split()
    if words[-1] == "--":
        words.append(path)
    subprocess.run(["git", *words], cwd=sample.path, env=dict(sample.environment), capture_output=True, check=False)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, min_size=3, max_size=25))
async def test_random_edits_give_the_same_tree_both_ways(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]]
) -> None:
    place = tmp_path_factory.mktemp("random")
    environment = repositories.git_environment(place / "home")
    repository = repositories.plain(place / "repo", environment)
    repository.git("config", "filter.up.clean", "tr a-z A-Z")
    repository.git("worktree", "add", "-q", "-b", "work", str(place / "tree"))
    sample = Sample(place / "tree", environment)
    context = GitContext(2, environment, 5.0)
    tracker = await trackers.track(context, sample.path)
    context.tree_sources = {sample.path: tracker}
    try:
        for kind, name, more in [*steps, ("look", "", "")]:
            match kind:
                case "look":  # to a checkpoint's files
                    taken = await capture(context, sample.path, ref=f"{CHECKPOINTS}any/1")
                    assert taken.files == await scanned(context, sample)
                case "read":
                    await tracker.mark()
                case "meanwhile":  # it may be missing in that tree; the next one must have it
                    await asyncio.gather(tracker.tree(), asyncio.to_thread(act, sample, "write", name, more))
                case "scaffold":  # while watches are set again
                    sample.write(".gitignore", more)
                    await asyncio.gather(tracker.tree(), asyncio.to_thread(act, sample, kind, name, more))
                case _:
                    act(sample, kind, name, more)
    finally:
        await tracker.close()
        await context.aclose()
        shutil.rmtree(place)
