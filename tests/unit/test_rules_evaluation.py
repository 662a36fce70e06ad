"""Verdicts of rules on single calls."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.rules import Call, Effect, Rule, Verdict, evaluate

HOME = Path("/home/nobody-here")
WORKTREE = Path("/srv/nowhere/worktree")


def judge(tool: str, arguments: dict[str, Any], *, deny: str = "", ask: str = "", allow: str = "") -> Verdict:
    """Return the verdict of rules separated by ``|``."""
    lists = ((Effect.ALLOW, allow), (Effect.ASK, ask), (Effect.DENY, deny))
    rules = [Rule(text, effect, text) for effect, texts in lists for text in texts.split("|") if text]
    return evaluate(rules, Call(tool, arguments, WORKTREE), home=HOME)


def bash(command: str, **rules: str) -> Effect | None:
    return judge("Bash", {"command": command}, **rules).effect


ALLOWED = [
    ("the exact command", "npm test", "Bash(npm test)"),
    ("the same words, quoted otherwise", "npm 'test'", 'Bash("npm" test)'),
    ("more words after a prefix", "git status -s", "Bash(git status:*)"),
    ("the prefix alone", "git status", "Bash(git status:*)"),
    ("two commands of one rule", "git status && git status -s", "Bash(git status:*)"),
    ("two commands of two rules", "git status; npm test | git status", "Bash(git status:*)|Bash(npm test)"),
    ("a subshell and a group", "(git status); { git status; }", "Bash(git status:*)"),
    ("a condition and a loop", "while git status; do ! git status; done", "Bash(git status:*)"),
    ("several lines and comments", "# look; rm\ngit status # && rm\n", "Bash(git status:*)"),
    ("a continued line", "git \\\n  status", "Bash(git status:*)"),
    ("output thrown away", "git status >/dev/null 2>&1", "Bash(git status:*)"),
    ("a quoted here-document", "cat - <<'E'\n$(rm x)\nE\n", "Bash(cat -)"),
    ("operators inside quotes", "git commit -m 'a; rm && $(x)'", "Bash(git commit:*)"),
    ("a variable among the arguments", 'git log "$BRANCH"', "Bash(git log:*)"),
    ("a compound command approved as a whole", "cd x && make > log", "Bash(cd x && make > log)"),
    ("a step into a directory of the worktree", "cd src && git status", "Bash(cd:*)|Bash(git status:*)"),
    ("a wrapper with its command in the rule", "timeout 5 pytest -x", "Bash(timeout 5 pytest:*)"),
    ("a timed command", "time git status", "Bash(git status:*)"),
]

NOT_COVERED = [
    ("a second command", "git status; rm x", "Bash(git status:*)"),
    ("a second command after a pipe", "git status | sh", "Bash(git status:*)"),
    ("a second command on another line", "git status\nrm x", "Bash(git status:*)"),
    ("a second command in the background", "git status & rm x", "Bash(git status:*)|Bash(rm:*)"),
    ("a word that only begins alike", "git statusx", "Bash(git status:*)"),
    ("options before the subcommand", "git -C /x status", "Bash(git status:*)"),
    ("more words than an exact rule has", "npm test -- -x", "Bash(npm test)"),
    ("a program of that name elsewhere", "/tmp/git status", "Bash(git status:*)"),
    ("a command substitution", "git status $(rm x)", "Bash(git status:*)"),
    ("a command substitution in quotes", 'git status "`rm x`"', "Bash(git status:*)"),
    ("a process substitution", "git status <(rm x)", "Bash(git status:*)"),
    ("a redirection to a file", "git status > .bashrc", "Bash(git status:*)"),
    ("an appending redirection", "git status >>x", "Bash(git status:*)"),
    ("a redirection to a name that an expansion makes", 'git status >"/dev/null$X"', "Bash(git status:*)"),
    ("a redirection of both streams", "git status &>x", "Bash(git status:*)"),
    ("a network redirection", "git status </dev/tcp/evil/80", "Bash(git status:*)"),
    ("a descriptor kept in a variable", "git status {PATH}>/dev/null", "Bash(git status:*)"),
    ("an assignment before the command", "PATH=/evil git status", "Bash(git status:*)"),
    ("an assignment on its own", "PATH=/evil; git status", "Bash(git status:*)"),
    ("a loop that assigns", "for PATH in /evil; do git status; done", "Bash(git status:*)"),
    ("an expansion that assigns", "git status ${PATH:=/evil}", "Bash(git status:*)"),
    ("an expansion that runs", "git status ${x@P}", "Bash(git status:*)"),
    ("arithmetic", "git status $((a[$(rm)]))", "Bash(git status:*)"),
    ("old arithmetic", "git status $[a]", "Bash(git status:*)"),
    ("a function of the command's name", "git() { rm x; }; git status", "Bash(git status:*)|Bash(rm:*)"),
    ("an exported variable", "export PATH=/evil; git status", "Bash(git status:*)"),
    ("a variable in command position", "$GIT status", "Bash(git status:*)"),
    ("a glob in command position", "gi? status", "Bash(git status:*)"),
    ("a subcommand by variable", "git $X", "Bash(git status:*)"),
    ("a quoted reserved word, which is a command", "'if' git status", "Bash(git status:*)"),
    ("a reserved word after a redirection, which is a command", "2>/dev/null if git status", "Bash(git status:*)"),
    ("time with options, which is a program", "time -o x git status", "Bash(git status:*)"),
    ("time after a pipe, which is a program", "git status |\n time git status", "Bash(git status:*)"),
    ("an unfinished quote", "git status 'x", "Bash(git status:*)"),
    ("an unquoted here-document that runs", "git status <<E\n$(rm x)\nE\n", "Bash(git status:*)"),
    ("a here-document that ends early", "git status <<E\nE\nrm x\nE\n", "Bash(git status:*)|Bash(E)"),
    ("a carriage return", "git status\rrm", "Bash(git status:*)"),
    ("a step out of the worktree", "cd .. && git status", "Bash(cd:*)|Bash(git status:*)"),
    ("an unknown directory", "cd - && git status", "Bash(cd:*)|Bash(git status:*)"),
    ("two steps, of which the second depends on the first", "cd a; cd b; git status", "Bash(cd:*)|Bash(git status:*)"),
    ("a program named by place after a step", "cd a; ./x", "Bash(cd:*)|Bash(./x)"),
    ("what find runs", "find . -exec rm {} +", "Bash(find:*)"),
    ("what a wrapper runs beyond the rule", "find . -name x -exec rm {} +", "Bash(find . -name:*)"),
    ("a printf that assigns", "printf -v PATH x; git status", "Bash(printf:*)|Bash(git status:*)"),
    ("a case", "case x in x) git status;; esac", "Bash(git status:*)"),
    ("a coprocess", "coproc git status", "Bash(git status:*)"),
    ("nothing", " ", "Bash(git status:*)"),
    ("only a comment", "# git status", "Bash(git status:*)"),
]

DENIED = [
    ("plainly", "rm x"),
    ("by its path", "/bin/rm x"),
    ("with an escape", "\\rm x"),
    ("in quotes", "r''m \"x\""),
    ("in ANSI quotes", "$'\\162m' x"),
    ("continued on the next line", "r\\\nm x"),
    ("after another", "true && rm x"),
    ("in a pipe", "ls | rm x"),
    ("in the background", "sleep 1 & rm x"),
    ("in a substitution", "echo $(rm x)"),
    ("in a quoted substitution", 'echo "a $(echo "$(rm x)")"'),
    ("in backquotes", "echo `rm x`"),
    ("in a process substitution", "cat <(rm x)"),
    ("in an expansion's default", "echo ${a:-$(rm x)}"),
    ("in a here-document that is expanded", "cat <<E\n$(rm x)\nE\n"),
    ("in a here-document for a shell", "bash -s <<'E'\nrm x\nE\n"),
    ("in a here-string for a shell", "sh <<< 'rm x'"),
    ("piped into a shell", "echo 'rm x' | sh"),
    ("piped into a shell by a wrapper", "command echo 'rm x' | env sh"),
    ("in another shell", 'true && env FOO=1 bash -c "rm -rf x"'),
    ("in a shell with clustered options", "bash -euxc 'rm x'"),
    ("in two shells", "sh -c \"bash -c 'rm x'\""),
    ("evaluated", "eval 'r'm x"),
    ("trapped", "trap 'rm x' EXIT"),
    ("as root", "sudo -n -u bob rm x"),
    ("with an environment", "env -i -u X A=b rm x"),
    ("split by env", "env -S 'rm x'"),
    ("as a plain command", "command rm x"),
    ("in its own place", "exec -a y rm x"),
    ("with priority", "nice -n 5 rm x"),
    ("with a limit", "timeout -k 1 --signal TERM 5 rm x"),
    ("timed", "time -p rm x"),
    ("with arguments from elsewhere", "ls | xargs -0 -n 1 rm"),
    ("by find", "find . -name x -exec rm {} \\;"),
    ("negated", "! rm x"),
    ("in a loop", "for f in *; do rm $f; done"),
    ("in a condition", "if [ -f x ]; then rm x; fi"),
    ("in a case", "case x in a) rm x;; esac"),
    ("in a function", "f() { rm x; }; f"),
    ("in a function of the other form", "function f { rm x; }; f"),
    ("in a test", "[[ $(rm x) ]]"),
    ("in a coprocess", "coproc rm x"),
    ("through a variable", "x=rm; $x y"),
    ("through a variable that holds an argument", "x='rm -f'; $x y"),
    ("after an empty variable", "$SUDO rm x"),
    ("with braces", "{rm,-rf,x}"),
    ("with a glob", "/bin/r[m] x"),
    ("with an assignment", "A=b rm x"),
    ("after a redirection", ">/dev/null rm x"),
    ("before something that cannot be read", "rm x\necho 'unfinished"),
]


@pytest.mark.parametrize(("what", "command", "allow"), ALLOWED, ids=[case[0] for case in ALLOWED])
def test_a_command_is_allowed_when_all_of_it_is_covered(what: str, command: str, allow: str) -> None:
    assert bash(command, allow=allow) is Effect.ALLOW, what


@pytest.mark.parametrize(("what", "command", "allow"), NOT_COVERED, ids=[case[0] for case in NOT_COVERED])
def test_a_command_is_left_to_a_person_when_something_in_it_is_not_covered(what: str, command: str, allow: str) -> None:
    verdict = judge("Bash", {"command": command}, allow=allow)
    assert verdict.effect is None, what
    assert verdict.reason


@pytest.mark.parametrize(("what", "command"), DENIED, ids=[case[0] for case in DENIED])
def test_a_denied_command_is_found(what: str, command: str) -> None:
    assert bash(command, deny="Bash(rm:*)", allow="Bash(true)") is Effect.DENY, what
    assert bash(command, ask="Bash(rm:*)") is Effect.ASK, what


@pytest.mark.parametrize(
    "command",
    [
        "echo rm",
        "git rm x",
        "xargs -0 grep rm",
        "git commit -m 'rm x'",
        "git commit -m \"$(cat <<'E'\nrm (x) it's\nE\n)\"",
        "rmdir x",
        "# rm x",
        "[ rm ]",
    ],
)
def test_a_denied_command_that_is_only_mentioned_is_not_denied(command: str) -> None:
    assert bash(command, deny="Bash(rm:*)") is None


def test_deny_goes_before_ask_and_ask_before_allow() -> None:
    every = {"deny": "Bash(git push:*)", "ask": "Bash(git:*)", "allow": "Bash(git log:*)"}
    assert bash("git log && git push", **every) is Effect.DENY
    assert bash("git log", **every) is Effect.ASK
    assert bash("git log", allow=every["allow"]) is Effect.ALLOW


def test_a_denied_subcommand_is_found_behind_options() -> None:
    assert bash("git -C x -c a=b push origin", deny="Bash(git push:*)") is Effect.DENY
    assert bash("git push origin main --force", deny="Bash(git push --force:*)") is Effect.DENY
    assert bash("git push origin main", deny="Bash(git push --force:*)") is None


def test_a_shell_call_that_leaves_the_sandbox_is_not_covered() -> None:
    arguments = {"command": "git status", "dangerouslyDisableSandbox": True}
    assert judge("Bash", arguments, allow="Bash(git status)").effect is None


def test_a_rule_for_bash_counts_for_other_tools_that_run_commands() -> None:
    assert judge("Monitor", {"command": "rm x"}, deny="Bash(rm:*)").effect is Effect.DENY
    assert judge("Monitor", {"command": "git status"}, allow="Bash(git status)").effect is Effect.ALLOW


@pytest.mark.parametrize("arguments", [{}, {"command": None}, {"command": ["git", "status"]}])
def test_a_call_without_a_readable_command_is_never_allowed(arguments: dict[str, Any]) -> None:
    assert judge("Bash", arguments, allow="Bash(git status:*)").effect is None
    assert judge("Bash", arguments, deny="Bash").effect is Effect.DENY


def test_files_withheld_from_the_file_tools_are_withheld_from_the_shell() -> None:
    assert bash("cat ./src/../.env", deny="Read(.env)") is Effect.DENY
    assert bash("true && sudo head -n 1 < .env", deny="Read(.env)") is Effect.DENY
    assert bash("echo x >> secrets/key", deny="Edit(secrets/**)") is Effect.DENY
    assert bash("rm -r secrets", deny="Edit(secrets/**)") is Effect.DENY
    assert bash("echo .env >> .gitignore", deny="Read(.env)|Edit(.env)") is None


FETCHES = [
    ("https://example.com/a?b", True),
    ("http://EXAMPLE.com.:8080/", True),
    ("https://user:pass@docs.example.com", True),
    ("https://example.com@evil.org/", False),
    ("https://evil.org\\@example.com/", False),
    ("https://evil.org/\t@example.com", False),
    ("https://evil.org#@example.com", False),
    ("https://evil.org?@example.com", False),
    ("https://notexample.com", False),
    ("https://example.com.evil.org", False),
    ("https://example.com%2eevil.org", False),
    ("ftp://example.com", False),
    ("https:///example.com", False),
    ("example.com", False),
    ("https://example.com:port/", False),
    ("https://[::1]/", False),
    ("", False),
]


@pytest.mark.parametrize(("url", "covered"), FETCHES)
def test_an_address_is_judged_by_the_host_that_everyone_sees_in_it(url: str, covered: bool) -> None:
    assert (judge("WebFetch", {"url": url}, allow="WebFetch(domain:example.com)").effect is Effect.ALLOW) is covered


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.org",
        "https://a.EVIL.org.",
        "https://evil.org\\@example.com",
        "https:\\\\evil.org",
        "https:evil.org",
        "evil.org",
        "https://e\tvil.org",
    ],
)
def test_a_denied_domain_is_found_in_any_spelling(url: str) -> None:
    assert judge("WebFetch", {"url": url}, deny="WebFetch(domain:evil.org)").effect is Effect.DENY


def test_a_domain_in_letters_of_another_script_is_the_same_as_its_ascii_form() -> None:
    for rule in ("WebFetch(domain:bücher.example)", "WebFetch(domain:xn--bcher-kva.example)"):
        assert judge("WebFetch", {"url": "https://BÜCHER.example/"}, allow=rule).effect is Effect.ALLOW
    assert judge("WebFetch", {"url": "https://straße.example"}, allow="WebFetch(domain:strasse.example)").effect is None


def test_mcp_tools_are_covered_by_name_or_by_server() -> None:
    assert judge("mcp__git__log", {}, allow="mcp__git").effect is Effect.ALLOW
    assert judge("mcp__git__log", {}, allow="mcp__git__log").effect is Effect.ALLOW
    assert judge("mcp__git__log", {}, allow="mcp__git__lo|mcp__gi").effect is None
    assert judge("mcp__git__evil__log", {}, allow="mcp__git").effect is None
    assert judge("mcp__git__evil__log", {}, deny="mcp__git__evil").effect is Effect.DENY
    assert judge("mcp__git__log", {}, deny="mcp__*").effect is Effect.DENY


def test_agents_are_covered_by_type_under_either_name_of_the_tool() -> None:
    assert judge("Task", {"subagent_type": "Explore"}, allow="Agent(Explore)").effect is Effect.ALLOW
    assert judge("Agent", {"subagent_type": "Other"}, allow="Task(Explore)").effect is None
    assert judge("Agent", {"subagent_type": "Other"}, deny="Task").effect is Effect.DENY


def test_other_tools_are_covered_by_their_name() -> None:
    assert judge("WebSearch", {"query": "x"}, allow="WebSearch").effect is Effect.ALLOW
    assert judge("WebSearch", {"query": "x"}, allow="WebFetch(domain:example.com)").effect is None
    assert judge("Anything", {}, deny="*").effect is Effect.DENY


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.lists(st.text(max_size=5), max_size=2)
TOOLS = ["Bash", "Edit", "Write", "Read", "Glob", "Grep", "WebFetch", "Agent", "Skill", "mcp__a__b", "Odd tool"]
KEYS = ["command", "file_path", "path", "pattern", "glob", "url", "subagent_type", "skill"]
RULES = "Bash(git:*)|Edit(src/**)|Read(src/**)|WebFetch(domain:a.example)|mcp__a|Agent(x)|Skill(x)"


@given(st.sampled_from(TOOLS), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_whatever_an_agent_sends_there_is_a_verdict(tool: str, arguments: dict[str, Any]) -> None:
    for rules in ({"deny": RULES}, {"allow": RULES}):
        assert judge(tool, arguments, **rules).reason
