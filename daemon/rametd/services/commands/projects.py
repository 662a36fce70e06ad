"""Recognize the kind of project in a directory, and suggest a setup. Blocks: call it in a
thread."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LOCK_FILES = (
    *("uv.lock", "poetry.lock", "requirements*.txt", "pyproject.toml"),
    *("package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb"),
    *("Cargo.lock", "go.sum", "composer.lock", "Gemfile.lock"),
)
"""Files that a setup depends on by default."""


@dataclass(frozen=True, slots=True)
class Project:
    """``kind``: names of the tools, with commas."""

    kind: str
    setup: tuple[str, ...]


def recognise(root: Path) -> Project | None:
    """The project at ``root``; None if its kind is unknown."""
    found = [project for look in (_python, _javascript, _rust, _go, _php, _ruby) if (project := look(root)) is not None]
    if not found:
        return None
    return Project(", ".join(each.kind for each in found), tuple(line for each in found for line in each.setup))


def _python(root: Path) -> Project | None:
    pyproject = _text(root / "pyproject.toml")
    if _has(root, "uv.lock") or "[tool.uv" in pyproject:
        return Project("uv", ("uv sync",))
    if _has(root, "poetry.lock") or "[tool.poetry" in pyproject:
        return Project("poetry", ("poetry install",))
    install = "-r requirements.txt" if _has(root, "requirements.txt") else "-e ." if "[project]" in pyproject else ""
    return Project("pip", ("python3 -m venv .venv", f".venv/bin/pip install {install}")) if install else None


def _javascript(root: Path) -> Project | None:
    for lock, kind, command in (
        ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
        ("bun.lock", "bun", "bun install --frozen-lockfile"),
        ("bun.lockb", "bun", "bun install --frozen-lockfile"),
        ("package-lock.json", "npm", "npm ci"),
        ("npm-shrinkwrap.json", "npm", "npm ci"),
    ):
        if _has(root, lock):
            return Project(kind, (command,))
    if _has(root, "yarn.lock"):
        classic = "# yarn lockfile v1" in _text(root / "yarn.lock", 200)
        return Project("yarn", ("yarn install --frozen-lockfile" if classic else "yarn install --immutable",))
    return Project("npm", ("npm install",)) if _has(root, "package.json") else None


def _one(name: str, kind: str, command: str, lock: str = "", locked: str = "") -> Callable[[Path], Project | None]:
    def look(root: Path) -> Project | None:
        if not _has(root, name):
            return None
        return Project(kind, (locked if lock and _has(root, lock) else command,))

    return look


_rust = _one("Cargo.toml", "cargo", "cargo fetch", "Cargo.lock", "cargo fetch --locked")
_go = _one("go.mod", "go", "go mod download")
_php = _one("composer.json", "composer", "composer install")
_ruby = _one("Gemfile", "bundler", "bundle install")


def _has(root: Path, name: str) -> bool:
    return (root / name).is_file()


def _text(path: Path, limit: int = 1 << 20) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(limit)
    except OSError:
        return ""


def named_files(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """Files that match ``patterns`` (globs relative to ``root``), sorted; without links that lead
    out of ``root``."""
    found = {path for pattern in patterns or LOCK_FILES for path in root.glob(pattern)}
    yield from sorted(path for path in found if path.is_file() and path.resolve().is_relative_to(root.resolve()))
