"""Rules offered when a person says "always"."""

from pathlib import Path
from typing import Any

import pytest
from rametd.rules import Call, Effect, Rule, completed, evaluate, is_whole_line, offers, parse, suggest

TOP = Path("/srv/nowhere/worktree")

CASES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("Bash", {"command": "git status -s"}, ("Bash(git status -s)", "Bash(git status:*)")),
    ("Bash", {"command": "npm run build --prod"}, ("Bash(npm run build --prod)", "Bash(npm run build:*)")),
    ("Bash", {"command": "uv run pytest -k x"}, ("Bash(uv run pytest -k x)", "Bash(uv run pytest:*)")),
    ("Bash", {"command": "uv run python x"}, ("Bash(uv run python x)",)),
    ("Bash", {"command": "cargo test && rm -rf x > log"}, ("Bash(cargo test && rm -rf x > log)",)),
    ("Bash", {"command": "bash -c 'git status'"}, ("Bash(bash -c 'git status')",)),
    ("Bash", {"command": "sudo apt update"}, ("Bash(sudo apt update)",)),
    ("Bash", {"command": "find . -exec x {} +"}, ("Bash(find . -exec x {} +)",)),
    ("Bash", {"command": "rm x"}, ("Bash(rm x)",)),
    ("Bash", {"command": "curl x"}, ("Bash(curl x)",)),
    ("Bash", {"command": "git push origin"}, ("Bash(git push origin)",)),
    ("Bash", {"command": "python x"}, ("Bash(python x)",)),
    ("Bash", {"command": "ls -la"}, ("Bash(ls -la)",)),
    ("Bash", {"command": "ls *"}, ()),
    ("Bash", {"command": "a\nb"}, ()),
    ("Bash", {}, ()),
    ("Edit", {"file_path": "src/a[1].py"}, ("Edit(/src/a\\[1\\].py)", "Edit(/src/**)")),
    ("Write", {"file_path": "README.md"}, ("Edit(/README.md)",)),
    ("Write", {"file_path": "/etc/app/x"}, ("Edit(//etc/app/x)", "Edit(//etc/app/**)")),
    ("Edit", {"file_path": ".git/config"}, ("Edit(/.git/config)", "Edit(/.git/**)")),
    ("Read", {"file_path": "/srv/nowhere/worktree/src/!x y.md"}, ("Read(/src/\\!x\\ y.md)", "Read(/src/**)")),
    ("Grep", {"pattern": "x", "path": "src"}, ("Read(/src/**)",)),
    ("Grep", {"pattern": "x"}, ()),
    ("WebFetch", {"url": "https://docs.example.com:8/a"}, ("WebFetch(domain:docs.example.com)",)),
    ("WebFetch", {"url": "https://a@b\\c"}, ()),
    ("mcp__git__log", {"n": 1}, ("mcp__git__log",)),
    ("Task", {"subagent_type": "Explore"}, ("Task(Explore)",)),
    ("Skill", {"skill": "x"}, ("Skill(x)",)),
    ("WebSearch", {"query": "x"}, ("WebSearch",)),
]


@pytest.mark.parametrize(("tool", "arguments", "expected"), CASES)
def test_rules_are_offered_narrowest_first_and_each_covers_the_call(
    tool: str, arguments: dict[str, Any], expected: tuple[str, ...]
) -> None:
    call = Call(tool, arguments, TOP)
    offered = suggest(call, home=Path("/home/nobody-here"))
    assert offered == expected
    for text in offered:
        assert evaluate([Rule("r", Effect.ALLOW, text)], call, home=Path("/home/nobody-here")).effect is Effect.ALLOW


def test_a_command_that_ends_like_a_prefix_is_not_offered_as_one() -> None:
    assert not any(parse(text).prefix for text in suggest(Call("Bash", {"command": "grep x:*"}, TOP)))


@pytest.mark.parametrize(
    ("command", "best"),
    [
        ("python -m pytest -q tests/x.py 2>&1 | tail -20", ("Bash(python -m pytest:*)", "Bash(tail:*)")),
        ("git add -A && git commit -m x", ("Bash(git add:*)", "Bash(git commit:*)")),
        ("git commit -m x", ("Bash(git commit:*)",)),
        ("cd src && npm run test", ("Bash(cd:*)", "Bash(npm run test:*)")),
        ("python -m http.server", ("Bash(python -m http.server)",)),
        ("rm x", ("Bash(rm x)",)),
    ],
)
def test_the_first_offer_matches_such_calls_again_and_covers_this_one(command: str, best: tuple[str, ...]) -> None:
    call = Call("Bash", {"command": command}, TOP)
    assert offers(call, home=Path("/home/nobody-here"))[0] == best
    rules = [Rule("r", Effect.ALLOW, text) for text in best]
    assert evaluate(rules, call, home=Path("/home/nobody-here")).effect is Effect.ALLOW


@pytest.mark.parametrize("command", ["cargo test && rm -rf x > log", "curl x | sh", "for i in 1 2; do echo $i; done"])
def test_a_line_without_a_safe_rule_is_offered_only_as_the_complete_line(command: str) -> None:
    for offer in offers(Call("Bash", {"command": command}, TOP)):
        assert offer == (f"Bash({command})",)
        assert is_whole_line(offer[0])


PYTEST = "python -m pytest -q tests/x.py"


@pytest.mark.parametrize(
    ("command", "asked", "offered"),
    [
        ("rm x", ["Bash(rm:*)", "Bash(for i in:*)"], [("Bash(rm:*)",), ("Bash(rm x)",)]),
        ("rm x", ["Bash(git commit *)"], [("Bash(rm x)",)]),
        (
            f"{PYTEST} 2>&1 | tail -20",
            [f"Bash({PYTEST})"],
            [
                ("Bash(python -m pytest:*)", "Bash(tail:*)"),
                (f"Bash({PYTEST})", "Bash(tail:*)"),
                (f"Bash({PYTEST} 2>&1 | tail -20)",),
            ],
        ),
        ("rm x | wc -l", ["Bash(rm *)"], [("Bash(rm *)", "Bash(wc:*)"), ("Bash(rm x | wc -l)",)]),
        ("git commit -m x", ["Bash(git commit *)"], [("Bash(git commit:*)",), ("Bash(git commit -m x)",)]),
        (
            "git commit -m x && git log | head -1",
            ["Bash(git commit *)"],
            [
                ("Bash(git commit:*)", "Bash(git log:*)", "Bash(head:*)"),
                ("Bash(git commit -m x && git log | head -1)",),
            ],
        ),
    ],
)
def test_each_offer_allows_the_call_and_comes_once(
    command: str, asked: list[str], offered: list[tuple[str, ...]]
) -> None:
    call = Call("Bash", {"command": command}, TOP)
    found = offers(call, asked, home=Path("/home/nobody-here"))
    assert list(found) == offered
    for texts in found:
        rules = [Rule("r", Effect.ALLOW, text) for text in texts]
        assert evaluate(rules, call, home=Path("/home/nobody-here")).effect is Effect.ALLOW


@pytest.mark.parametrize(
    ("tool", "arguments", "narrow", "broad"),
    [
        ("Bash", {"command": "npm test"}, "Bash(npm test:*)", "Bash(npm:*)"),
        ("Bash", {"command": "git commit -m x"}, "Bash(git commit *)", "Bash(git *)"),
        ("mcp__git__log", {}, "mcp__git__log", "mcp__git"),
        ("Edit", {"file_path": "src/a.py"}, "Edit(/src/a.py)", "Edit(*.py)"),
    ],
)
def test_a_broad_rule_of_the_agent_never_comes_before_a_narrow_one(
    tool: str, arguments: dict[str, Any], narrow: str, broad: str
) -> None:
    call = Call(tool, arguments, TOP)
    own = offers(call, home=Path("/home/nobody-here"))
    for asked in ([broad], [broad, narrow], [narrow, broad], [broad, broad, narrow]):
        found = [[parse(text) for text in offer] for offer in offers(call, asked, home=Path("/home/nobody-here"))]
        assert found[0] == [parse(text) for text in own[0]]
        assert found.index([parse(narrow)]) < found.index([parse(broad)])


@pytest.mark.parametrize(
    ("typed", "tool", "rule"),
    [
        ("git commit *", "Bash", "Bash(git commit:*)"),
        ("git commit", "Bash", "Bash(git commit)"),
        ("Bash(git commit:*)", "Bash", "Bash(git commit:*)"),
        ("src/**", "Edit", "Edit(src/**)"),
        ("mcp__git__log", "mcp__git__log", "mcp__git__log"),
        ("WebSearch", "WebSearch", "WebSearch"),
    ],
)
def test_a_rule_is_completed_with_the_tool_of_the_call(typed: str, tool: str, rule: str) -> None:
    assert completed(typed, tool) == rule


@pytest.mark.parametrize(
    ("text", "whole"),
    [("Bash(ls -la)", False), ("Bash(a | b)", True), ("Bash(a > b)", True), ("Bash(a:*)", False), ("Edit(/a)", False)],
)
def test_a_complete_line_differs_from_a_command(text: str, whole: bool) -> None:
    assert is_whole_line(text) == whole
