"""Values of trust: items of a settings file, those in force, and paths whose writes by an agent
need approval."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.agents.base import ToolUse
from rametd.config import Source, combine, from_items, items
from rametd.domain.models import Mode
from rametd.domain.trust import UNBOUNDED, Trusted, digest_of, item_digest, shown
from rametd.git.commits import files_at
from rametd.git.repository import discover
from rametd.services.ownership.guard import ask_for_protected
from rametd.services.trust.contents import (
    MOST_BYTES,
    MOST_FILES,
    MOST_LEVELS,
    claude_files,
    files_below_hooks,
    loads,
    runs,
)

from tests.support.daemon import git
from tests.support.rows import a_session

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)
HOME = Path("/home/someone")


def toml_string(text: str) -> str:
    return '"' + "".join(f"\\U{ord(char):08X}" for char in text) + '"'


@given(
    st.lists(TEXTS, min_size=1), st.dictionaries(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True), TEXTS)
)
def test_the_items_of_a_file_mean_what_the_file_means(setup: list[str], run: dict[str, str]) -> None:
    text = f"setup = [{', '.join(map(toml_string, setup))}]\n[run]\n"
    text += "".join(f"{name} = {toml_string(command)}\n" for name, command in run.items())
    source, owner = Source("file", text), Source("owner", "")
    found = items(source)
    assert found.keys() == {"setup", *(f"run.{name}" for name in run)}
    again, whole = (combine(owner, each, home=HOME) for each in (from_items("file", found), source))
    assert (again.setup, again.run) == (whole.setup, whole.run)


def test_a_changed_setting_keeps_its_trusted_value_and_a_new_one_does_not_count() -> None:
    old = {"setup": "a", "carry": "c", "gone": "g"}
    trusted = Trusted(frozenset(item_digest(*each) for each in old.items()), old)
    now = {"setup": "b", "carry": "c", "teardown": "t"}
    assert trusted.in_force(now) == {"setup": "a", "carry": "c"}
    assert trusted.withheld(now) == {"setup": "b", "teardown": "t"}
    assert trusted.difference(now).splitlines()[:5] == ["--- trusted/setup", "+++ now/setup", "@@ -1 +1 @@", "-a", "+b"]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("# deps\fcurl x", "# deps\ncurl x", ["-# deps\fcurl x", "+# deps", "+curl x"]),
        ("# deps\u2028curl x", "# deps\ncurl x", ["-# deps\u2028curl x", "+# deps", "+curl x"]),
        ("# a\x85b\n", "# a\nb\n", ["-# a\x85b", "+# a", "+b"]),
        ("a\r\nb\n", "a\nb\n", ["-a\r", "+a", " b"]),
        ("a", "a\n", ["-a", "\\ No newline at end of file", "+a"]),
        ("a\n", "a", ["-a", "+a", "\\ No newline at end of file"]),
        (
            "a\n\\ No newline at end of file\n",
            "a",
            ["-a", "-\\ No newline at end of file", "+a", "\\ No newline at end of file"],
        ),
        ("a", "a\nb", [" a", "+b"]),
        ("a", "", ["-a", "\\ No newline at end of file"]),
    ],
)
def test_every_change_is_shown(old: str, new: str, lines: list[str]) -> None:
    trusted = Trusted(frozenset({item_digest("key", old)}), {"key": old})
    assert trusted.difference({"key": new}).split("\n")[3:] == lines


@given(st.text("a\n\f\x85\u2028\r\\", max_size=8), st.text("a\n\f\x85\u2028\r\\", max_size=8))
def test_no_change_has_an_empty_difference(old: str, new: str) -> None:
    trusted = Trusted(frozenset({item_digest("key", old)}), {"key": old})
    assert bool(trusted.difference({"key": new})) == (old != new)


def test_other_contents_have_another_digest() -> None:
    contents = [{}, {"a": "b"}, {"ab": ""}, {"a": "b", "c": ""}, {"a\0b": ""}, {"a": "\0b"}]
    assert len({digest_of(each) for each in contents}) >= len(contents) - 1
    assert shown(b"\xff") != shown(b"\xfe")


@pytest.mark.parametrize(
    ("path", "protected"),
    [
        (".ramet.toml", True),
        (".RAMET.toml", True),
        (".worktreeinclude", True),
        (".mcp.json", True),
        (".claude/settings.local.json", True),
        (".claude/Skills/a/SKILL.md", True),
        (".claude/hooks/run.sh", True),
        (".claude/agents/notes.txt", False),
        ("sub/.ramet.toml", False),
        ("sub/.claude/skills/a/SKILL.md", True),
        ("a/b/.CLAUDE/commands/x.md", True),
        (".claude/skills/a/.claude/agents/x.md", True),
        (".claude/skills/node_modules/a/SKILL.md", True),
        ("sub/.claude/hooks/run.sh", False),
        ("sub/.claude/settings.json", False),
        ("claude/skills/SKILL.md", False),
        ("opencode.json", True),
        (".opencode/plugin/x.js", True),
        (".OpenCode/tool/x.ts", True),
        (".opencode/node_modules/x/index.js", False),
        (".codex/config.toml", True),
        (".codex/hooks.json", True),
        (".gemini/settings.json", True),
        (".vscode/mcp.json", True),
        ("sub/.opencode/plugin/x.js", False),
        ("CLAUDE.md", False),
        ("src/main.py", False),
    ],
)
def test_files_that_commands_come_from(path: str, protected: bool) -> None:
    assert runs(path) == protected


@pytest.mark.parametrize(
    ("link", "target", "written", "asked"),
    [
        (".claude", "conf", "conf/skills/new/SKILL.md", True),
        (".claude", "conf", "conf/settings.local.json", True),
        (".claude/skills", "../tools/skills", "tools/skills/a/SKILL.md", True),
        (".claude/skills", "../tools/skills", "tools/skills/a/run.py", False),
        (".claude/skills/a", "../../tools/a", "tools/a/SKILL.md", True),
        (".claude/settings.json", "../conf.json", "conf.json", True),
        (".ramet.toml", "conf.toml", "conf.toml", True),
        (".ramet.toml", "conf.toml", "other.toml", False),
        ("docs", ".claude/agents", "docs/a.md", True),
        ("", "", ".git/hooks/pre-commit", True),
        ("", "", ".GIT", True),
        ("", "", "vendor/x/.git/config", True),
        ("", "", "src/main.py", False),
    ],
)
@pytest.mark.parametrize("mode", [Mode.ACCEPT_EDITS, Mode.BYPASS])
async def test_a_write_to_what_runs_commands_is_asked_about_under_every_name(
    tmp_path: Path, link: str, target: str, written: str, asked: bool, mode: Mode
) -> None:
    if link:
        place = tmp_path / link
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
        folder = Path(os.path.realpath(place))
        (folder.parent if folder.suffix else folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / ".claude/skills/new").mkdir(parents=True, exist_ok=True)
    use = ToolUse("Write", {"file_path": str(tmp_path / written)}, str(tmp_path))
    found = await ask_for_protected(a_session(worktree=tmp_path, mode=mode), use)
    assert found.effect == ("ask" if asked and mode is not Mode.BYPASS else "")


def test_each_agent_waits_for_trust_in_its_own_files_alone(tmp_path: Path) -> None:
    names = [
        ".mcp.json",
        ".claude/agents/a.md",
        "sub/.claude/skills/a/SKILL.md",
        "opencode.json",
        ".opencode/plugin/x.js",
        ".codex/hooks.json",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".opencode/node_modules").mkdir()
    (tmp_path / ".opencode/node_modules/x.js").write_text("x")
    found = claude_files(tmp_path, [names[2]])
    assert sorted(found) == sorted(names)
    assert {agent: [name for name in names if loads(agent, name)] for agent in ("claude", "opencode", "codex", "mine")} == {
        "claude": names[:3], "opencode": names[3:5], "codex": names[5:], "mine": names,
    }  # fmt: skip


def test_a_circle_of_links_and_a_pipe_among_claudes_files_end(tmp_path: Path) -> None:
    (tmp_path / ".claude/skills/a").mkdir(parents=True)
    (tmp_path / ".claude/skills/a/SKILL.md").write_text("x")
    (tmp_path / ".claude/skills/a/again").symlink_to(tmp_path / ".claude/skills")
    os.mkfifo(tmp_path / ".mcp.json")
    assert claude_files(tmp_path)[".claude/skills/a/SKILL.md"] == "x"
    assert ".mcp.json" not in claude_files(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *(f".claude/skills/{folder}/a/SKILL.md" for folder in ("node_modules", ".venv", "__pycache__", ".hidden")),
        ".claude/agents/node_modules/a.md",
        ".claude/hooks/__pycache__/a.pyc",
        "sub/.claude/skills/a/SKILL.md",
        "sub/deep/.claude/commands/a.md",
    ],
)
def test_no_folder_of_claude_is_passed_over(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text("x")
    assert claude_files(tmp_path, [name]) == {name: "x"}


def test_files_beyond_a_limit_are_never_trusted(tmp_path: Path) -> None:
    for name in ("many", "deep", "large"):
        (tmp_path / name / ".claude/hooks").mkdir(parents=True)
    for i in range(MOST_FILES + 1):
        (tmp_path / f"many/.claude/hooks/{i}").touch()
    (tmp_path / "deep/.claude/hooks" / "/".join("a" * (MOST_LEVELS + 1))).mkdir(parents=True)
    with (tmp_path / "large/.claude/hooks/a").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for name in ("many", "deep", "large"):
        found = claude_files(tmp_path / name)
        trusted = Trusted(frozenset(item_digest(*each) for each in found.items()), found)
        assert list(trusted.withheld(found)) == [UNBOUNDED], name


def test_folders_of_claude_below_the_top_are_found_in_a_commit(tmp_path: Path) -> None:
    names = [".claude/agents/m.md", "a/.CLAUDE/commands/y.md", "a/b/.claude/skills/x/SKILL.md"]
    for name in (*names, "a/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        git(tmp_path, *command)
    assert sorted(files_at(discover(tmp_path), "HEAD", (), anywhere=".claude")) == names


def test_hooks_behind_a_link_are_items_of_trust(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "repo", tmp_path / "elsewhere"
    (root / ".husky").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "pre-commit").write_text("curl evil\n")
    (root / ".husky/_").symlink_to(elsewhere)
    (elsewhere / "loop").symlink_to(root / ".husky")
    for folder in (root / ".husky", root / ".husky/_"):
        assert files_below_hooks(root, root / ".git", folder)[".husky/_/pre-commit"] == "curl evil\n"
