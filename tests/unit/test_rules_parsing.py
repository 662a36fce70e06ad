"""The syntax of rules: accepted texts, and refusals with a hint."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rametd.domain.errors import BadRuleError
from rametd.rules import Effect, parse

REFUSED = [
    ("an empty rule", "  "),
    ("a bare shell", "Bash"),
    ("a shell with a star", "Bash(*)"),
    ("a shell with an empty prefix", "Bash(:*)"),
    ("nothing in the parentheses", "Bash()"),
    ("only white space before the prefix mark", "Bash( :*)"),
    ("every tool", "*"),
    ("every MCP tool", "mcp__*"),
    ("every MCP tool, spelled longer", "mcp____*"),
    ("an MCP tool by wildcard", "mcp__a__b*"),
    ("an MCP tool with a specifier", "mcp__a__b(x)"),
    ("any editing", "Edit"),
    ("every file", "Edit(**)"),
    ("every file, anchored", "Edit(/**)"),
    ("every file in the worktree's top", "Edit(*)"),
    ("every file below a directory", "Read(*/**)"),
    ("every file by a class of characters", "Edit([!]]*)"),
    ("everything with a dot", "Edit(*.*)"),
    ("the worktree itself", "Edit(.)"),
    ("the whole file system", "Read(//**)"),
    ("the whole home directory", "Read(~/**)"),
    ("the home directory by name", "Read(~)"),
    ("a climbing pattern", "Edit(../x/**)"),
    ("a pattern that climbs in the middle", "Edit(src/../../x)"),
    ("brackets in brackets", "Edit(a[[]*)"),
    ("a range that runs backwards", "Edit(a[z-a])"),
    ("a negated pattern", "Edit(!src/**)"),
    ("a pattern that is a comment", "Edit(#src/**)"),
    ("an unclosed parenthesis", "Bash(git status"),
    ("a parenthesis too many", "Bash(git status))"),
    ("a parenthesis without its opening", "Bash)"),
    ("text after the parenthesis", "Bash(git status) x"),
    ("a tool in lower case", "bash(git status)"),
    ("a tool with a wildcard", "Ba*h(git status)"),
    ("a specifier where none is taken", "WebSearch(x)"),
    ("a star in the middle", "Bash(git * main)"),
    ("a prefix mark in the middle is an exact command, a star is not", "Bash(git:* main*)"),
    ("a prefix of two commands", "Bash(true && git:*)"),
    ("a prefix with a variable", "Bash($X:*)"),
    ("a prefix with an assignment", "Bash(A=1 pytest:*)"),
    ("a prefix with a substitution", "Bash(echo $(x):*)"),
    ("an unfinished quote before the prefix mark", "Bash(echo 'x:*)"),
    ("any command of a shell", "Bash(bash:*)"),
    ("any text for a shell", "Bash(sh -c:*)"),
    ("any text for a shell by its path", "Bash(/bin/sh -c:*)"),
    ("anything as root", "Bash(sudo:*)"),
    ("anything as another user", "Bash(sudo -u bob:*)"),
    ("anything in an environment", "Bash(env A=1:*)"),
    ("anything with arguments from elsewhere", "Bash(xargs -0:*)"),
    ("anything with a time limit", "Bash(timeout 5:*)"),
    ("anything at all", "Bash(eval:*)"),
    ("an exported variable", "Bash(export:*)"),
    ("a sourced file", "Bash(source:*)"),
    ("any address", "WebFetch"),
    ("any domain", "WebFetch(domain:*)"),
    ("a top-level domain", "WebFetch(domain:com)"),
    ("a domain with a wildcard", "WebFetch(domain:*.example.com)"),
    ("an address instead of a domain", "WebFetch(https://example.com)"),
    ("an agent by wildcard", "Agent(Exp*)"),
    ("a control character", "Bash(git\x07 status)"),
]


@pytest.mark.parametrize(("what", "text"), REFUSED, ids=[what for what, _ in REFUSED])
def test_a_rule_that_means_nothing_or_everything_is_refused_with_a_hint(what: str, text: str) -> None:
    with pytest.raises(BadRuleError) as caught:
        parse(text)
    assert caught.value.hint, what
    assert caught.value.data == {"rule": text}
    assert caught.value.reason == "BAD_RULE"


@pytest.mark.parametrize(
    "text",
    ["*", "Bash", "Bash(*)", "Edit", "Edit(**)", "Read(//**)", "mcp__*", "WebFetch", "Bash(sudo:*)", "Bash(bash:*)"],
)
@pytest.mark.parametrize("effect", [Effect.DENY, Effect.ASK])
def test_a_rule_that_denies_or_asks_may_be_broad(text: str, effect: Effect) -> None:
    parse(text, effect)


@pytest.mark.parametrize("text", ["Edit(../x)", "", "Bash(x", "Bash(git * x)", "mcp__a(b)", "Edit(!x)"])
def test_a_rule_that_denies_must_mean_something_too(text: str) -> None:
    with pytest.raises(BadRuleError):
        parse(text, Effect.DENY)


def test_a_command_is_split_into_words_as_a_shell_does() -> None:
    assert parse("Bash(git commit -m 'a b')").words == ("git", "commit", "-m", "a b")
    assert parse("Bash(npm run test:*)").prefix
    assert parse("Bash(npm run test *)") == parse("Bash(npm run test:*)")
    assert not parse("Bash(npm run test)").prefix


def test_parentheses_in_quotes_need_not_match() -> None:
    assert parse("Bash(echo ')')").words == ("echo", ")")


def test_a_server_may_be_named_with_a_trailing_star() -> None:
    assert parse("mcp__github__*") == parse("mcp__github")


@given(
    st.text(max_size=40)
    | st.builds("{}({}".format, st.sampled_from(["Bash", "Edit", "WebFetch", "mcp__a"]), st.text(max_size=40))
)
def test_any_text_is_a_rule_or_a_typed_refusal(text: str) -> None:
    for effect in Effect:
        with suppress(BadRuleError):
            parse(text, effect)


@given(st.text(alphabet="*?/.[]!a", min_size=1, max_size=8))
def test_no_pattern_that_allows_editing_matches_unrelated_places(glob: str) -> None:
    try:
        rule = parse(f"Edit({glob})")
    except BadRuleError:
        return
    assert rule.pattern is not None
    assert set(glob) - set("*?/.")
