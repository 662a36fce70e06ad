"""Carrying ignored files into a new worktree: which, how, and never out of it."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.services.commands.carry import Carried, Given, Order, bring, choose
from rametd.services.commands.projects import Project, named_files, recognise

MIB = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = tmp_path / "main"
    made.mkdir()
    return made


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    made.mkdir()
    return made


def order(*carry: str, rewrite: tuple[str, ...] = (), limit: int = MIB) -> Order:
    return Order(carry, rewrite, limit)


def carried(
    source: Path,
    tree: Path,
    candidates: list[str],
    wanted: Order,
    given: Given | None = None,
    but: tuple[str, ...] = (),
) -> Carried:
    """``but``: paths that git would not ignore in the tree."""
    done = Carried()
    chosen = choose(source, tree, candidates, wanted, done)
    bring(source, tree, chosen, set(chosen.paths) - set(but), wanted, given or Given(), done)
    return done


def put(root: Path, name: str, text: str = "text", mode: int = 0o644) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()}


def test_what_is_named_is_copied_with_its_mode_and_the_rest_is_not(source: Path, tree: Path) -> None:
    put(source, ".env", mode=0o600)
    put(source, "sub/.env.local", mode=0o755)
    put(source, "secret")
    done = carried(source, tree, [".env", "sub/.env.local", "secret"], order(".env*"))
    assert files(tree) == {".env", "sub/.env.local"}
    assert stat.S_IMODE((tree / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE((tree / "sub/.env.local").stat().st_mode) == 0o755
    assert (done.files, done.bytes, done.words) == (2, 8, [])


def test_an_ignored_directory_is_entered_only_by_a_pattern_that_names_it(source: Path, tree: Path) -> None:
    for name in ("node_modules/a/.env", "cache/keep/x", "cache/drop/y", ".env"):
        put(source, name)
    candidates = ["node_modules/", "cache/", ".env"]
    carried(source, tree, candidates, order(".env", "/cache/keep/"))
    assert files(tree) == {".env", "cache/keep/x"}
    carried(source, tree, candidates, order("node_modules"))
    assert "node_modules/a/.env" in files(tree)


def test_a_repository_s_own_directory_is_never_carried(source: Path, tree: Path) -> None:
    for name in (".git/config", "vendor/.git/config", "vendor/lib.c"):
        put(source, name)
    carried(source, tree, [".git/", "vendor/"], order("*"))
    assert files(tree) == {"vendor/lib.c"}


@pytest.mark.parametrize(
    ("link", "carried_as"),
    [
        ("nowhere", "nowhere"),  # each link is in node_modules
        ("../packages/core", "../packages/core"),
        ("{source}/packages/core", "{tree}/packages/core"),
        ("{outside}/file", "a copy"),
        ("../../outside/file", "a copy"),
        ("{outside}/program", "{outside}/program"),
        ("../../outside/program", "../../outside/program"),
        ("{outside}", None),
        ("../../outside", None),
    ],
)
def test_no_link_leads_from_the_tree_into_files_of_the_person(
    source: Path, tree: Path, tmp_path: Path, link: str, carried_as: str | None
) -> None:
    names = {"source": str(source), "tree": str(tree), "outside": str(tmp_path / "outside")}
    put(tmp_path, "outside/file", "outside")
    put(tmp_path, "outside/program", mode=0o755)
    put(source, "packages/core/v", "the person's")
    put(source, "node_modules/x/index.js")
    (source / "node_modules/link").symlink_to(link.format(**names))

    done = carried(source, tree, ["node_modules/"], order("node_modules"))

    made = tree / "node_modules/link"
    if carried_as is None:
        assert not made.is_symlink()
        assert "node_modules/link is not carried: it is a link to a directory elsewhere" in done.words[0]
    elif carried_as == "a copy":
        assert not made.is_symlink()
        assert made.read_text() == "outside"
    else:
        assert str(made.readlink()) == carried_as.format(**names)
    assert (tree / "node_modules/x/index.js").exists()


def test_nothing_written_in_a_carried_directory_reaches_the_source(source: Path, tree: Path) -> None:
    store = put(source.parent, "store/index.js", "mine")
    (source / "node_modules/pkg").mkdir(parents=True)
    (source / "node_modules/pkg/index.js").hardlink_to(store)
    put(source, "node_modules/.bin/run", mode=0o755)

    done = carried(source, tree, ["node_modules/"], order("node_modules"))
    for file in (tree / "node_modules").rglob("*.js"):
        with file.open("a") as out:
            out.write("broken")
    subprocess.run(["find", ".", "-delete"], cwd=tree / "node_modules", check=True)

    assert done.files == 2
    assert store.read_text() == (source / "node_modules/pkg/index.js").read_text() == "mine"
    assert stat.S_IMODE((source / "node_modules/.bin/run").stat().st_mode) == 0o755


def test_carry_leaves_out_links_to_directories_and_paths_through_links(
    source: Path, tree: Path, tmp_path: Path
) -> None:
    outside = put(tmp_path, "outside/secret").parent
    (source / "data").symlink_to(outside)
    (tree / "conf").symlink_to(outside)
    put(source, "conf/.env")

    done = carried(source, tree, ["data", "conf/.env"], order("*"))

    assert not (tree / "data").is_symlink()
    assert os.listdir(outside) == ["secret"]  # noqa: PTH208 - names alone
    assert sorted(line.partition(" is not carried")[0] for line in done.words) == ["conf/.env", "data"]


def test_existing_files_stay_unchanged(source: Path, tree: Path) -> None:
    put(source, ".env", f"A={source}")
    put(tree, ".env", f"B={source}")
    carried(source, tree, [".env"], order(".env", rewrite=(".env",)))
    assert (tree / ".env").read_text() == f"B={source}"


def test_a_spare_gets_newer_files_unless_its_own_were_changed(source: Path, tree: Path) -> None:
    given = Given()
    for name in ("kept", "changed", "same"):
        put(source, name, "old")
    put(source, "paths", f"A={source}")
    names = ["kept", "changed", "same", "paths"]
    wanted = order("*", rewrite=("paths",))
    assert carried(source, tree, names, wanted, given).files == 4
    put(tree, "changed", "edited")
    put(tree, "same", "edited")
    put(source, "kept", "newer")
    put(source, "changed", "newer")
    done = carried(source, tree, names, wanted, given)
    assert [(tree / name).read_text() for name in names] == ["newer", "edited", "edited", f"A={tree}"]
    assert (done.files, done.words) == (1, ["changed is not carried again: it was changed in the worktree"])


def test_a_session_is_given_each_file_once(source: Path, tree: Path) -> None:
    given = Given()
    put(source, "kept", "old")
    put(source, "deleted", "old")
    carried(source, tree, ["kept", "deleted"], order("*"), given)
    given.settled = True
    (tree / "deleted").unlink()
    for name in ("kept", "deleted", "new"):
        put(source, name, "newer")
    carried(source, tree, ["kept", "deleted", "new"], order("*"), given)
    assert {name: (tree / name).read_text() for name in files(tree)} == {"kept": "old", "new": "newer"}


def test_the_limit_counts_what_a_spare_got_before(source: Path, tree: Path) -> None:
    given = Given()
    put(source, "a.bin", "x" * (MIB - 10))
    put(source, "b.bin", "x" * 20)
    for _ in range(2):  # as a spare, then for its session
        done = carried(source, tree, ["a.bin", "b.bin"], order("*.bin"), given)
        assert files(tree) == {"a.bin"}
        assert done.words == ["1 file is not carried: over the limit of 1 MiB (carry_limit): b.bin"]
    put(source, "a.bin", "y" * (MIB - 20))
    carried(source, tree, ["a.bin", "b.bin"], order("*.bin"), given)
    assert files(tree) == {"a.bin", "b.bin"}, "a copy that is replaced makes room"


def test_a_session_gets_one_warning_for_an_incomplete_carried_directory(
    source: Path, tree: Path, tmp_path: Path
) -> None:
    given = Given()
    put(tmp_path, "outside/file")
    put(source, "node_modules/x/index.js")
    (source / "node_modules/link").symlink_to(tmp_path / "outside")
    first = carried(source, tree, ["node_modules/"], order("node_modules"), given)
    assert [words.partition(" is")[0] for words in first.words] == ["node_modules/link"]
    assert carried(source, tree, ["node_modules/"], order("node_modules"), given).words == first.words
    given.settled = True
    assert carried(source, tree, ["node_modules/"], order("node_modules"), given).words == []


def test_files_that_would_be_committed_are_left_out_with_a_warning(source: Path, tree: Path) -> None:
    put(source, ".env")
    put(source, "models/big")
    done = carried(source, tree, [".env", "models/"], order(".env", "models/"), but=(".env", "models/"))
    assert files(tree) == set()
    assert done.words[0].startswith("2 files are not carried: the branch tracks them or does not ignore them")


CUT_OFF = """
import pathlib, resource, signal, sys
from tests.unit.test_carry import carried, order
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
carried(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), [".env"], order(".env", limit=1 << 30))
"""


def test_a_copy_that_is_killed_leaves_nothing_in_the_tree(source: Path, tree: Path) -> None:
    put(source, ".env", "x" * (4 << 20))
    done = subprocess.run([sys.executable, "-c", CUT_OFF, str(source), str(tree)], check=False)
    assert done.returncode == -signal.SIGXFSZ
    assert files(tree) == set()
    carried(source, tree, [".env"], order(".env", limit=1 << 30))
    assert files(tree) == {".env"}
    assert {path.name for path in tree.parent.iterdir()} == {"main", "tree"}


def test_content_over_the_limit_is_left_out_with_a_warning(source: Path, tree: Path) -> None:
    put(source, "a.bin", "x" * MIB)
    put(source, "b.bin", "x")
    done = carried(source, tree, ["a.bin", "b.bin"], order("*.bin"))
    assert files(tree) == {"a.bin"}
    assert done.words == ["1 file is not carried: over the limit of 1 MiB (carry_limit): b.bin"]


def test_a_directory_over_the_limit_is_left_out_completely(source: Path, tree: Path) -> None:
    put(source, "models/a.bin", "x" * MIB)
    put(source, "models/b.bin", "x")
    put(source, "z.bin", "x" * 10)
    done = carried(source, tree, ["models/", "z.bin"], order("*.bin", "models"))
    assert files(tree) == {"z.bin"}
    assert (done.files, done.bytes) == (1, 10)
    assert done.words == ["1 file is not carried: over the limit of 1 MiB (carry_limit): models"]


def test_a_directory_that_holds_the_new_worktree_is_not_copied_into_it(source: Path) -> None:
    tree = source / "trees/one"
    tree.mkdir(parents=True)
    done = carried(source, tree, ["trees/"], order("trees"))
    assert done.words == ["trees is not carried: the new worktree is inside it"]


@pytest.mark.parametrize("pattern", [".claude", ".claude/**/*.json"])
def test_worktrees_inside_an_ignored_directory_are_not_carried(source: Path, tree: Path, pattern: str) -> None:
    for name in ("settings.json", "worktrees/task/package.json", "worktrees/task/src/a.json"):
        put(source, f".claude/{name}")
    put(source, ".claude/worktrees/task/.git", f"gitdir: {source}/.git/worktrees/task\n")
    put(source, ".claude/module/.git", f"gitdir: {source}/.git/modules/module\n")
    put(source, ".claude/module/c.json")
    done = carried(source, tree, [".claude/"], order(pattern))
    assert files(tree) == {".claude/settings.json", ".claude/module/c.json"}
    words = [".claude/worktrees/task is not carried: it is a worktree"]
    assert done.words == (words if pattern == ".claude" else [])


def test_a_read_only_directory_is_carried_with_its_mode(source: Path, tree: Path) -> None:
    folder = put(source, "cache/mod/a", mode=0o444).parent
    folder.chmod(0o555)
    folder.parent.chmod(0o555)
    carried(source, tree, ["cache/"], order("cache"))
    assert [stat.S_IMODE((tree / name).stat().st_mode) for name in ("cache", "cache/mod")] == [0o555, 0o555]
    for made in (folder, folder.parent, tree / "cache", tree / "cache/mod"):
        made.chmod(0o755)


def test_paths_into_the_old_tree_are_rewritten_in_the_named_files_only(source: Path, tree: Path) -> None:
    text = f"A={source}\nB={source}/x:{source}-old/y {source}.bak\n"
    put(source, ".env", text, 0o400)
    put(source, "other", text)
    put(source, ".venv/bin/activate", text)
    carried(
        source, tree, [".env", "other", ".venv/"], order(".env", "other", ".venv", rewrite=(".env", "/.venv/bin/*"))
    )
    assert (tree / ".env").read_text() == f"A={tree}\nB={tree}/x:{source}-old/y {source}.bak\n"
    assert stat.S_IMODE((tree / ".env").stat().st_mode) == 0o400
    assert (tree / "other").read_text() == text
    assert (tree / ".venv/bin/activate").read_text() == (tree / ".env").read_text()


NAMES = st.text("ab.*?/ [!]\\", min_size=1, max_size=12)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")  # of pathspec's regular expressions, for "[["
@given(st.lists(NAMES, max_size=6))
def test_no_pattern_makes_it_fail(patterns: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        missing = Path(folder, "missing")
        carried(missing, missing, ["..", "../a", ".git/x"], order(*patterns))


@pytest.mark.parametrize(
    ("names", "kind", "setup"),
    [
        (("uv.lock", "pyproject.toml"), "uv", ("uv sync",)),
        (("poetry.lock",), "poetry", ("poetry install",)),
        (("requirements.txt",), "pip", ("python3 -m venv .venv", ".venv/bin/pip install -r requirements.txt")),
        (("package-lock.json", "package.json"), "npm", ("npm ci",)),
        (("package.json",), "npm", ("npm install",)),
        (("pnpm-lock.yaml", "package.json"), "pnpm", ("pnpm install --frozen-lockfile",)),
        (("yarn.lock",), "yarn", ("yarn install --immutable",)),
        (("bun.lock",), "bun", ("bun install --frozen-lockfile",)),
        (("Cargo.toml", "Cargo.lock"), "cargo", ("cargo fetch --locked",)),
        (("Cargo.toml",), "cargo", ("cargo fetch",)),
        (("go.mod",), "go", ("go mod download",)),
        (("composer.json",), "composer", ("composer install",)),
        (("Gemfile",), "bundler", ("bundle install",)),
        (("uv.lock", "package-lock.json"), "uv, npm", ("uv sync", "npm ci")),
    ],
)
def test_the_kind_of_a_project_is_recognised(
    tmp_path: Path, names: tuple[str, ...], kind: str, setup: tuple[str, ...]
) -> None:
    for name in names:
        put(tmp_path, name)
    assert recognise(tmp_path) == Project(kind, setup)


def test_a_directory_without_a_project_gets_no_setup(tmp_path: Path) -> None:
    assert recognise(tmp_path) is None
    assert recognise(tmp_path / "missing") is None


def test_files_that_a_setup_depends_on_are_in_the_tree(tree: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside/x.lock")
    (tree / "linked").symlink_to(tmp_path / "outside")
    put(tree, "a/b/y.lock")
    put(tree, "uv.lock")
    assert list(named_files(tree, ("**/*.lock", "linked/*.lock"))) == [tree / "a/b/y.lock", tree / "uv.lock"]
    assert list(named_files(tree, ())) == [tree / "uv.lock"]
