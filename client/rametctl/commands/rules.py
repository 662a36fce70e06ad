"""`rametctl rules`: manage permission rules."""

import time
from collections.abc import Mapping

import click
from ramet.v1 import attention_pb2
from ramet.v1.attention_pb2 import PermissionRule

from rametctl.app import App
from rametctl.console.lines import line
from rametctl.errors import ClientError, RefusedError, UsageError
from rametctl.nouns.sessions import session_pages
from rametctl.options import (
    Verb,
    VerbGroup,
    agent_option,
    complete_session,
    repo_option,
    repo_reference,
)
from rametctl.render.rule import rule_table, rule_text

EFFECTS = ("allow", "ask", "deny")


@click.group("rules", cls=VerbGroup, short_help="Manage permission rules: ls, rm, add.")
@click.pass_context
def command(context: click.Context) -> None:
    """Manage permission rules, in Claude Code's syntax. Deny takes precedence over ask,
    and ask over allow. `approve --always` and `--session` create rules.

    \b
    Examples:
      rametctl rules
      rametctl rules add "Bash(make test:*)"
      rametctl rules add "Edit(migrations/**)" --deny
      rametctl rules rm k3xw9abc
    """
    if context.invoked_subcommand is None:
        _list(context.ensure_object(App), None)


@command.command("ls", cls=Verb, short_help="List rules.")
@repo_option
@click.pass_obj
def ls(app: App, repo: str | None) -> None:
    """List the rules of the current directory's repository, oldest first. Outside a
    repository, list all rules.

    \b
    Example:
      rametctl rules ls --json | jq -r '.[] | select(.matches == 0).id'
    """
    _list(app, repo)


@command.command("rm", cls=Verb, short_help="Remove rules.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.pass_obj
def remove(app: App, ids: tuple[str, ...]) -> None:
    """Remove rules ID..., each an id or a unique prefix. Ramet then asks you again about calls that
    they allowed.

    \b
    Example:
      rametctl rules rm k3xw9abc
    """
    known = _rules(app, "")
    chosen = {_find(known, given).id: None for given in ids}
    removed = [
        app.call(
            lambda daemon: daemon.attention.DeleteRule,
            attention_pb2.DeleteRuleRequest(rule_id=rule_id),
        ).rule
        for rule_id in chosen
    ]
    app.output.answer(removed, (line(f"removed: {rule_text(rule)}") for rule in removed))


@command.command("add", cls=Verb, short_help="Add a rule.")
@click.argument("rule")
@click.option("--allow", is_flag=True, help="Allow matching calls (default).")
@click.option("--ask", is_flag=True, help="Always ask you, in every mode.")
@click.option("--deny", is_flag=True, help="Deny matching calls.")
@click.option(
    "--session", metavar="SESSION", shell_complete=complete_session, help="Apply the rule to this session only."
)
@agent_option("Apply the rule to this kind of agent only.")
@repo_option
@click.pass_obj
def add(
    app: App, rule: str, allow: bool, ask: bool, deny: bool, session: str | None, agent: str, repo: str | None
) -> None:
    """Add RULE to the current directory's repository, or to one session: "Bash(git status:*)",
    "Edit(src/**)", "mcp__server__tool", "WebFetch(domain:example.com)".

    \b
    Examples:
      rametctl rules add "Bash(make test:*)"
      rametctl rules add "Bash(git push:*)" --ask --session release
      rametctl rules add "Bash(npm test)" --agent codex
    """
    chosen = [name for name, given in zip(EFFECTS, (allow, ask, deny), strict=True) if given]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0]} and --{chosen[1]} were both given", hint="give one of them")
    effect = chosen[0] if chosen else "allow"
    request = attention_pb2.CreateRuleRequest(
        rule=rule, effect=attention_pb2.RuleEffect.Value(f"RULE_EFFECT_{effect.upper()}"), agent=agent
    )
    if session is not None:
        request.session = session
    else:
        request.repo = repo_reference(app, repo)
    answer = app.call(lambda daemon: daemon.attention.CreateRule, request)
    app.output.answer(answer.rule, [f"{answer.rule.id}: {rule_text(answer.rule, session or '')}"])


def _list(app: App, repo: str | None) -> None:
    around = repo is None
    where = repo_reference(app, repo) if not around else app.repo_here() or ""
    try:
        found = _rules(app, where)
    except ClientError as error:
        # A repository is registered with its first session.
        if not (around and error.reason == "REPO_NOT_FOUND"):
            raise
        found = []
    app.output.answer(
        found,
        rule_table(app.output, found, _names(app, found), time.time()),
        empty='no rules; to add one: rametctl approve REQUEST --always, or: rametctl rules add "Bash(make test:*)"',
    )


def _rules(app: App, repo: str) -> "list[PermissionRule]":
    """Return the rules of all pages; ``repo`` "" means all repositories."""
    request = attention_pb2.ListRulesRequest(repo=repo)
    return app.listed(lambda daemon: daemon.attention.ListRules, request, lambda page: page.rules)


def _names(app: App, rules: "list[PermissionRule]") -> "Mapping[str, str]":
    """Return the names of sessions with their own rules, by id."""
    if not any(rule.session_id for rule in rules):
        return {}
    pages = session_pages(app.connection, repo="", archived=True)
    return {session.id: session.name for page in pages for session in page.sessions}


def _find(rules: "list[PermissionRule]", given: str) -> "PermissionRule":
    found = [rule for rule in rules if rule.id == given] or [rule for rule in rules if rule.id.startswith(given)]
    if not found or not given:
        raise RefusedError(
            f"there is no rule {given!r}",
            status="NOT_FOUND",
            reason="RULE_NOT_FOUND",
            hint="see: rametctl rules",
            data={},
        )
    if len(found) > 1:
        raise UsageError(f"{given!r} fits several rules", hint=", ".join(rule.id for rule in found), reason="AMBIGUOUS")
    return found[0]
