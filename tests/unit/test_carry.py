"""Carrying ignored files into a new worktree: which, how, and never out of it."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.services.commands.carry import Carried, Order, bring
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


def order(*carry: str, link: tuple[str, ...] = (), rewrite: tuple[str, ...] = (), limit: int = MIB) -> Order:
    return Order((*carry, *link), link, rewrite, limit, replace=False)


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
    done = bring(source, tree, [".env", "sub/.env.local", "secret"], order(".env*"))
    assert files(tree) == {".env", "sub/.env.local"}
    assert stat.S_IMODE((tree / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE((tree / "sub/.env.local").stat().st_mode) == 0o755
    assert (done.files, done.bytes, done.words) == (2, 8, [])


def test_a_directory_that_is_ignored_as_a_whole_is_entered_only_by_a_pattern_that_names_it(
    source: Path, tree: Path
) -> None:
    for name in ("node_modules/a/.env", "cache/keep/x", "cache/drop/y", ".env"):
        put(source, name)
    candidates = ["node_modules/", "cache/", ".env"]
    bring(source, tree, candidates, order(".env", "/cache/keep/"))
    assert files(tree) == {".env", "cache/keep/x"}
    bring(source, tree, candidates, order("node_modules"))
    assert "node_modules/a/.env" in files(tree)


def test_a_repository_s_own_directory_is_never_carried(source: Path, tree: Path) -> None:
    for name in (".git/config", "vendor/.git/config", "vendor/lib.c"):
        put(source, name)
    bring(source, tree, [".git/", "vendor/"], order("*"))
    assert files(tree) == {"vendor/lib.c"}


def test_links_stay_links_and_nothing_is_read_or_written_through_them(source: Path, tree: Path, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside/secret").parent
    (source / "data").symlink_to(outside)
    (source / "one").symlink_to("nowhere")
    (tree / "conf").symlink_to(outside)
    put(source, "conf/.env")
    done = bring(source, tree, ["data", "one", "conf/.env"], order("*"))
    assert (tree / "data").readlink() == outside
    assert (tree / "one").readlink() == Path("nowhere")
    assert os.listdir(outside) == ["secret"]  # noqa: PTH208 - names alone
    assert len(done.words) == 1
    assert "conf/.env is not carried" in done.words[0]


def test_what_is_there_stays_unless_it_is_to_be_replaced(source: Path, tree: Path) -> None:
    put(source, ".env", "new")
    put(tree, ".env", "edited")
    bring(source, tree, [".env"], order(".env"))
    assert (tree / ".env").read_text() == "edited"
    bring(source, tree, [".env"], Order((".env",), (), (), MIB, replace=True))
    assert (tree / ".env").read_text() == "new"


def test_what_is_too_much_is_left_out_and_told(source: Path, tree: Path) -> None:
    put(source, "a.bin", "x" * MIB)
    put(source, "b.bin", "x")
    done = bring(source, tree, ["a.bin", "b.bin"], order("*.bin"))
    assert files(tree) == {"a.bin"}
    assert done.words == ["1 file is not carried, for that would be more than 1 MiB (carry_limit): b.bin"]


def test_on_request_it_is_linked_instead(source: Path, tree: Path) -> None:
    put(source, "models/big")
    done = bring(source, tree, ["models/"], order(link=("models/",)))
    assert (tree / "models").readlink() == source / "models"
    assert done == Carried(links=1)


def test_paths_into_the_old_tree_are_rewritten_in_files_named_for_that_and_in_no_other(
    source: Path, tree: Path
) -> None:
    text = f"A={source}\nB={source}/x:{source}-old/y {source}.bak\n"
    put(source, ".env", text, 0o400)
    put(source, "other", text)
    bring(source, tree, [".env", "other"], order(".env", "other", rewrite=(".env",)))
    assert (tree / ".env").read_text() == f"A={tree}\nB={tree}/x:{source}-old/y {source}.bak\n"
    assert stat.S_IMODE((tree / ".env").stat().st_mode) == 0o400
    assert (tree / "other").read_text() == text


NAMES = st.text("ab.*?/ [!]\\", min_size=1, max_size=12)


@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")  # of pathspec's regular expressions, for "[["
@given(st.lists(NAMES, max_size=6))
def test_no_pattern_makes_it_fail(patterns: list[str]) -> None:
    bring(Path("/nonexistent"), Path("/nonexistent"), ["..", "../a", ".git/x"], order(*patterns))


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


def test_nothing_is_made_up_of_a_directory_that_is_no_project(tmp_path: Path) -> None:
    assert recognise(tmp_path) is None
    assert recognise(tmp_path / "missing") is None


def test_files_that_a_setup_depends_on_lie_in_the_tree(tree: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside/x.lock")
    (tree / "linked").symlink_to(tmp_path / "outside")
    put(tree, "a/b/y.lock")
    put(tree, "uv.lock")
    assert list(named_files(tree, ("**/*.lock", "linked/*.lock"))) == [tree / "a/b/y.lock", tree / "uv.lock"]
    assert list(named_files(tree, ())) == [tree / "uv.lock"]
