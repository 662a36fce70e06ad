"""Patterns against real directories: links, ``..``, letter case."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rametd.rules import Call, Effect, Rule, evaluate


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    """Create a worktree beside other directories, with links in and out of it."""
    top = tmp_path / "worktree"
    for directory in ("src/deep", "docs", "secret", ".git/hooks"):
        (top / directory).mkdir(parents=True)
    (tmp_path / "outside/src").mkdir(parents=True)
    (tmp_path / "home/notes").mkdir(parents=True)
    for file in (
        top / "src/a.py",
        top / "secret/key",
        top / "docs/x.md",
        tmp_path / "outside/f",
        tmp_path / "home/notes/n",
    ):
        file.touch()
    (top / "src/out").symlink_to(tmp_path / "outside")
    (top / "src/docs").symlink_to("../docs")
    (top / "docs/src").symlink_to("../src")
    (top / "docs/hidden").symlink_to("../secret/key")
    (top / "src/dangling").symlink_to(tmp_path / "outside/new")
    (top / "src/loop").symlink_to("loop")
    (top / "vault").symlink_to(tmp_path / "outside")
    (tmp_path / "alias").symlink_to(top)
    return top


def effect(
    worktree: Path, rule: str, path: str, *, tool: str = "Edit", deny: bool = False, ignore_case: bool = False
) -> Effect | None:
    kind = Effect.DENY if deny else Effect.ALLOW
    call = Call(tool, {"file_path" if tool in {"Edit", "Write", "Read"} else "path": path}, worktree)
    return evaluate([Rule("r", kind, rule)], call, home=worktree.parent / "home", ignore_case=ignore_case).effect


CASES = [
    ("a file in the directory", "Edit(src/**)", "src/a.py", True),
    ("a file that does not exist yet", "Edit(src/**)", "src/new/b.py", True),
    ("its absolute path", "Edit(src/**)", "{top}/src/a.py", True),
    ("its path through a link to the worktree", "Edit(src/**)", "{up}/alias/src/a.py", True),
    ("a link from elsewhere in the worktree", "Edit(src/**)", "docs/src/a.py", True),
    ("a way back into the directory", "Edit(src/**)", "docs/../src/./a.py", True),
    ("another directory", "Edit(src/**)", "docs/x.md", False),
    ("a directory of that name deeper down", "Edit(src/**)", "docs/sub/src/a.py", False),
    ("a climb out of the directory", "Edit(src/**)", "src/../docs/x.md", False),
    ("a climb out of the worktree", "Edit(src/**)", "src/../../outside/f", False),
    ("a link out of the worktree", "Edit(src/**)", "src/out/f", False),
    ("a link to another directory", "Edit(src/**)", "src/docs/x.md", False),
    ("a climb from where a link leads", "Edit(src/**)", "src/out/../secret", False),
    ("a link to a file that is not there yet", "Edit(src/**)", "src/dangling", False),
    ("a directory of that name outside", "Edit(src/**)", "{up}/outside/src/a.py", False),
    ("a file of the kind anywhere in the worktree", "Edit(*.md)", "docs/x.md", True),
    ("a file of the kind outside", "Edit(*.md)", "{up}/outside/x.md", False),
    ("an anchored directory", "Edit(/src/**)", "src/a.py", True),
    ("an absolute path of the rule is one in the worktree", "Edit(/etc/**)", "/etc/passwd", False),
    ("a place from the root", "Edit(/{up}/outside/**)", "{up}/outside/f", True),
    ("a place from the root, reached by a link", "Edit(/{up}/outside/**)", "src/out/f", True),
    ("a place beside one from the root", "Edit(/{up}/outside/**)", "{up}/outside2/f", False),
    ("a place from home", "Edit(~/notes/**)", "{up}/home/notes/n", True),
    ("git's own directory", "Edit(/.gi?/**)", ".git/hooks/pre-commit", False),
    ("git's own directory, if it is named", "Edit(.git/hooks/**)", ".git/hooks/pre-commit", True),
    ("the agent's settings", "Edit(*.json)", ".claude/settings.json", False),
    ("a tilde that may be a directory's name or home", "Edit(notes/**)", "~/notes/n", False),
    ("another letter case", "Edit(src/**)", "SRC/a.py", False),
    ("a line break", "Edit(src/**)", "src/a\nb", False),
]


@pytest.mark.parametrize(("what", "rule", "path", "covered"), CASES, ids=[case[0] for case in CASES])
def test_a_file_is_allowed_by_where_it_really_is(
    worktree: Path, what: str, rule: str, path: str, covered: bool
) -> None:
    places = {"{top}": str(worktree), "{up}": str(worktree.parent)}
    for name, value in places.items():
        rule, path = rule.replace(name, value), path.replace(name, value)
    assert (effect(worktree, rule, path) is Effect.ALLOW) is covered, what
    assert effect(worktree, rule, path, tool="Read") is None


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("Edit(secret/**)", "secret/key"),
        ("Edit(secret/**)", "docs/hidden"),
        ("Edit(secret/**)", "src/out/../worktree/secret/new"),
        ("Edit(secret)", "docs/../secret/key"),
        ("Edit(vault/**)", "vault/f"),
        ("Edit(vault/**)", "../outside/f"),
        ("Edit(vault)", "../outside/f"),
        ("Edit(*.py)", "src/a.py"),
        ("Edit(src/dangling)", "src/dangling"),
        ("Edit(~/notes/**)", "~/notes/n"),
        ("Write(secret/**)", "secret/key"),
        ("Edit", "anything"),
        ("Edit(**)", "anything"),
        ("Edit(//**)", "/etc/passwd"),
    ],
)
def test_a_denied_file_is_denied_as_written_and_as_resolved(worktree: Path, rule: str, path: str) -> None:
    assert effect(worktree, rule, path, deny=True) is Effect.DENY


def test_case_is_ignored_where_the_file_system_does(worktree: Path) -> None:
    for deny in (False, True):
        assert effect(worktree, "Edit(Src/**)", "sRC/a.py", deny=deny, ignore_case=True) is not None
        assert effect(worktree, "Edit(Src/**)", "sRC/a.py", deny=deny) is None
    assert effect(worktree, "Edit(.gi?/**)", ".GIT/config", ignore_case=True) is None


@pytest.mark.parametrize("tool", ["Edit", "Write"])
def test_a_rule_for_editing_covers_every_tool_that_edits(worktree: Path, tool: str) -> None:
    assert effect(worktree, "Edit(src/**)", "src/a.py", tool=tool) is Effect.ALLOW
    assert effect(worktree, "Read(src/**)", "src/a.py", tool=tool) is None


def test_a_search_is_covered_with_all_that_it_walks_through(worktree: Path) -> None:
    assert effect(worktree, "Read(src/**)", "src", tool="Grep") is Effect.ALLOW
    assert effect(worktree, "Read(src/**)", ".", tool="Grep") is None
    assert effect(worktree, "Read(src/*.py)", "src", tool="Grep") is None
    assert effect(worktree, "Read(secret/**)", "secret", tool="LS", deny=True) is Effect.DENY


def test_a_search_pattern_that_climbs_is_not_covered(worktree: Path) -> None:
    rules = [Rule("r", Effect.ALLOW, "Read(src/**)")]
    for pattern, expected in (("**/*.py", Effect.ALLOW), ("../**", None), ("{..,x}/*", None), ("/etc/*", None)):
        assert evaluate(rules, Call("Glob", {"pattern": pattern, "path": "src"}, worktree)).effect is expected


def test_a_search_that_may_show_what_is_withheld_is_left_to_a_person(worktree: Path) -> None:
    (worktree / "src/deep/key").touch()
    rules = [Rule("r", Effect.ALLOW, "Read(src/**)"), Rule("d", Effect.DENY, "Read(src/deep/key)")]
    assert evaluate(rules, Call("Grep", {"pattern": "x", "path": "src"}, worktree)).effect is None
    shows = {"pattern": "x", "path": "src", "output_mode": "content"}
    assert evaluate(rules, Call("Grep", shows, worktree)).effect is Effect.ASK
    assert evaluate(rules, Call("Grep", shows | {"glob": "*.{py,md}"}, worktree)).effect is Effect.ALLOW
    assert evaluate(rules, Call("Grep", {"pattern": "x", "path": "src/a.py"}, worktree)).effect is Effect.ALLOW
    assert (
        evaluate(rules, Call("Grep", {"pattern": "x", "path": "src", "glob": "deep/key"}, worktree)).effect
        is Effect.DENY
    )


NAMES = st.sampled_from(
    [
        "src",
        "SRC",
        "deep",
        "docs",
        "secret",
        "key",
        "out",
        "hidden",
        "vault",
        "loop",
        "dangling",
        "a.py",
        "..",
        ".",
        "",
        "new",
        "~",
    ]
)
PREFIXES = st.sampled_from(["", "", "./", "{top}/", "{up}/alias/", "{up}/", "/", "~/"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PREFIXES, st.lists(NAMES, min_size=1, max_size=6))
def test_no_spelling_of_a_path_escapes_a_rule(worktree: Path, prefix: str, names: list[str]) -> None:
    path = prefix.replace("{top}", str(worktree)).replace("{up}", str(worktree.parent)) + "/".join(names)
    real = os.path.realpath(worktree / path)
    if effect(worktree, "Edit(src/**)", path) is Effect.ALLOW:
        assert real.startswith(f"{os.path.realpath(worktree)}/src/")
    if real.startswith(f"{os.path.realpath(worktree)}/secret/"):
        assert effect(worktree, "Edit(secret/**)", path, deny=True) is Effect.DENY
    if real.startswith(f"{os.path.realpath(worktree.parent)}/outside/"):
        assert effect(worktree, "Edit(vault/**)", path, deny=True) is Effect.DENY
