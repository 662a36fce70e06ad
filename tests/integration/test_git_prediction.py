"""Predictions of conflicts compared with git's own merge."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pygit2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rametd.domain.conflicts import GREEN, ConflictKind, FileConflict, LineRange, mirrored, worst
from rametd.git.changes import changes
from rametd.git.prediction import predict

Files = Mapping[str, bytes]

AUTHOR = pygit2.Signature("A", "a@example.com", 1_700_000_000, 0)
LETTERS = "abcdefgh"
NAMES = ("one", "two", "dir/three", "dir/four", "dir/deep/five", "new", "other/six")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> pygit2.Repository:
    return pygit2.init_repository(str(tmp_path_factory.mktemp("prediction") / "r"), bare=True)


def tree_of(repository: pygit2.Repository, files: Files, modes: Mapping[str, int] | None = None) -> pygit2.Oid:
    index = pygit2.Index()
    for path, content in files.items():
        mode = pygit2.enums.FileMode((modes or {}).get(path, 0o100644))
        oid = pygit2.Oid(raw=content) if mode == pygit2.enums.FileMode.COMMIT else repository.create_blob(content)
        index.add(pygit2.IndexEntry(path, oid, mode))
    return index.write_tree(repository)


def said(
    repository: pygit2.Repository, base: Files, ours: Files, theirs: Files, ignore_case: bool = False
) -> tuple[FileConflict, ...]:
    trees = [tree_of(repository, files) for files in (base, ours, theirs)]
    mine, yours = (changes(repository, trees[0], tree) for tree in trees[1:])
    found = predict(repository, mine, yours, ignore_case=ignore_case)
    back = predict(repository, yours, mine, ignore_case=ignore_case)
    assert {each.path: each.kind for each in mirrored(back)} == {each.path: each.kind for each in found}
    return found


def git_refuses(repository: pygit2.Repository, base: Files, ours: Files, theirs: Files) -> bool:
    """Return whether `git merge-tree` of the same three has a conflict."""
    first = repository.create_commit(None, AUTHOR, AUTHOR, "base", tree_of(repository, base), [])
    sides = [
        str(repository.create_commit(None, AUTHOR, AUTHOR, "side", tree_of(repository, files), [first]))
        for files in (ours, theirs)
    ]
    merge = ["git", "merge-tree", "--write-tree", "--name-only", *sides]
    done = subprocess.run(merge, cwd=repository.path, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 1


def text(letters: str) -> bytes:
    return b"".join(
        f"{number} {letter} and some words to be told apart\n".encode() for number, letter in enumerate(letters)
    )


lines = st.text(alphabet=LETTERS, min_size=0, max_size=8)


@st.composite
def three_files(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """Generate a text and two edits of it: lines replaced, deleted, inserted."""
    base = [f"{letter} is line {number}\n" for number, letter in enumerate(draw(lines))]

    def edited() -> bytes:
        result = list(base)
        for _ in range(draw(st.integers(0, 3))):
            place = draw(st.integers(0, len(result)))
            drop = draw(st.integers(0, 2))
            result[place : place + drop] = [
                f"{letter} put in\n" for letter in draw(st.text(alphabet="xyz", max_size=2))
            ]
        return "".join(result).encode()

    return "".join(base).encode(), edited(), edited()


@given(three_files())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_conflicts_exactly_where_git_says_so(
    repository: pygit2.Repository, files: tuple[bytes, bytes, bytes]
) -> None:
    base, ours, theirs = ({"file": content} for content in files)
    found = said(repository, base, ours, theirs)
    assert (worst(found) not in GREEN) == git_refuses(repository, base, ours, theirs)
    for each in found:
        for ranges, content in ((each.lines, files[1]), (each.other_lines, files[2])):
            count = len(content.splitlines())
            assert all(1 <= each.start <= count + 1 and each.start - 1 <= each.end <= count for each in ranges)


@st.composite
def three_trees(draw: st.DrawFn) -> tuple[Files, Files, Files]:
    """Generate a tree and two sets of edits, deletions, additions and renames of it."""
    base = {name: text(f"{name}{draw(st.sampled_from(LETTERS))}") for name in draw(st.sets(st.sampled_from(NAMES[:5])))}

    def edited(own: str) -> Files:
        result = dict(base)
        for _ in range(draw(st.integers(0, 3))):
            name, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from((*NAMES, f"{own}/only")))
            match draw(st.sampled_from(["write", "delete", "rename"])):
                case "write":
                    result[name] = text(name) + draw(st.sampled_from([b"tail\n", b"end\n"]))
                case "delete":
                    result.pop(name, None)
                case "rename" if name in result and other not in result:
                    result[other] = result.pop(name)
        # A path cannot be a file and a directory at once.
        return {path: each for path, each in result.items() if not any(one.startswith(path + "/") for one in result)}

    return base, edited("left"), edited("right")


@given(three_trees())
@example(({"one": text("a")}, {"one": text("a"), "new": b"x\n"}, {"one": text("a"), "new/file": b"y\n"}))
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.full
def test_trees_conflict_exactly_where_git_says_so(
    repository: pygit2.Repository, files: tuple[Files, Files, Files]
) -> None:
    base, ours, theirs = files
    found = said(repository, base, ours, theirs)
    assert (worst(found) not in GREEN) == git_refuses(repository, base, ours, theirs), found


def kinds(found: tuple[FileConflict, ...]) -> dict[str, ConflictKind]:
    return {each.path: each.kind for each in found}


def test_each_kind_has_its_name(repository: pygit2.Repository) -> None:
    base = {"same": text("abcdefgh"), "over": text("abc"), "gone": text("abc"), "moved": text("hgf"), "image": b"\0one"}
    ours = {
        "same": text("Xbcdefgh"), "over": text("aXc"), "left": text("hgf"), "image": b"\0two", "fresh": b"ours\n",
    }  # fmt: skip
    theirs = {
        "same": text("abcdefgX"), "over": text("aYc"), "gone": text("abX"), "right": text("hgf"), "image": b"\0six",
        "fresh": b"theirs\n",
    }  # fmt: skip
    assert kinds(said(repository, base, ours, theirs)) == {
        "gone": ConflictKind.DELETE_EDIT,
        "left": ConflictKind.RENAME,
        "image": ConflictKind.BINARY,
        "fresh": ConflictKind.ADD_ADD,
        "over": ConflictKind.OVERLAP,
        "same": ConflictKind.SAME_FILE,
    }


def test_overlaps_have_the_lines_of_each_side(repository: pygit2.Repository) -> None:
    base, ours, theirs = text("abcdefgh"), text("abXXdefgh"), b"first\n" + text("abYdefgh")
    (found,) = said(repository, {"file": base}, {"file": ours}, {"file": theirs})
    assert found.kind == ConflictKind.OVERLAP
    (mine,), (yours,) = found.lines, found.other_lines
    assert mine.start <= 3 <= mine.end
    assert yours.start <= 4 <= yours.end


def test_the_same_change_on_both_sides_is_no_conflict(repository: pygit2.Repository) -> None:
    base, both = {"file": text("abc"), "gone": b"x\n"}, {"file": text("aXc"), "fresh": b"y\n"}
    assert said(repository, base, both, both) == ()


def test_paths_that_a_file_system_takes_for_one_meet(repository: pygit2.Repository) -> None:
    base, ours, theirs = {"a": b"a\n"}, {"a": b"a\n", "Readme": b"x\n"}, {"a": b"a\n", "README": b"y\n"}
    assert said(repository, base, ours, theirs) == ()
    (found,) = said(repository, base, ours, theirs, ignore_case=True)
    assert (found.path, found.other_path, found.kind) == ("Readme", "README", ConflictKind.ADD_ADD)


def test_submodules_that_both_move_are_a_conflict(repository: pygit2.Repository) -> None:
    modes = {"sub": 0o160000}
    trees = [tree_of(repository, {"sub": bytes([number]) * 20}, modes) for number in (1, 2, 3)]
    mine, yours = (changes(repository, trees[0], tree) for tree in trees[1:])
    assert kinds(predict(repository, mine, yours)) == {"sub": ConflictKind.SUBMODULE}


def test_text_that_is_not_utf_8_is_compared_all_the_same(repository: pygit2.Repository) -> None:
    base, ours, theirs = (f"stra{sharp}e\nzwei\n".encode("latin-1") for sharp in ("ß", "ü", "ö"))
    (found,) = said(repository, {"f": base}, {"f": ours}, {"f": theirs})
    assert (found.kind, found.lines) == (ConflictKind.OVERLAP, (LineRange(1, 1),))


def test_a_file_with_union_merge_never_conflicts(tmp_path: Path) -> None:
    repository = pygit2.init_repository(str(tmp_path / "r"))
    (tmp_path / "r" / ".gitattributes").write_text("log merge=union\n")
    assert kinds(said(repository, {"log": b"a\n"}, {"log": b"a\nb\n"}, {"log": b"a\nc\n"})) == {
        "log": ConflictKind.SAME_FILE
    }


@pytest.mark.parametrize("content", [lambda name: b"", lambda name: name.encode()], ids=["equal", "different"])
def test_a_moved_directory_of_many_files_is_found_soon(
    repository: pygit2.Repository, content: Callable[[str], bytes]
) -> None:
    """Comparing all pairs would take minutes."""
    names = [f"f{number}" for number in range(20_000)]
    before, after = (tree_of(repository, {f"{top}/{name}": content(name) for name in names}) for top in ("a", "b"))
    found = changes(repository, before, after)
    assert {old: each.new_path for old, each in found.by_old.items()} == {f"a/{name}": f"b/{name}" for name in names}


def test_identical_files_are_paired_by_name_first(repository: pygit2.Repository) -> None:
    before = tree_of(repository, dict.fromkeys(("a/x", "a/y", "a/z"), b"same\n"))
    after = tree_of(repository, dict.fromkeys(("b/y", "b/u", "c/y"), b"same\n"))
    found = changes(repository, before, after)
    assert {old: each.new_path for old, each in found.by_old.items()} == {"a/x": "b/u", "a/y": "b/y", "a/z": "c/y"}
