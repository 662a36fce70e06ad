"""`rametctl set`: change a session."""

from collections.abc import Sequence

import click
from google.protobuf.field_mask_pb2 import FieldMask
from ramet.v1 import session_pb2
from ramet.v1.session_pb2 import Session
from ramet.words import tokens

from rametctl.app import App
from rametctl.connection.environment import variable_changes
from rametctl.console.lines import line
from rametctl.errors import UsageError
from rametctl.nouns.sessions import get_session, session_name
from rametctl.options import (
    Budget,
    Verb,
    budget_option,
    effort_option,
    env_option,
    mode_name,
    mode_number,
    mode_option,
    session_argument,
)
from rametctl.render.format import limit


@click.command("set", cls=Verb, short_help="Change a session: model, mode, budget, paths, variables.")
@session_argument
@click.option("-m", "--model", help='Model; "" for the agent\'s default.')
@mode_option("Permission mode; see: rametctl help modes.")
@effort_option
@budget_option('Limit in dollars, or in tokens such as 2Mtok; "none" removes both.', removable=True)
@click.option("-n", "--name", help="Name.")
@click.option("--priority", type=int, metavar="N", help="Higher starts first when slots are scarce.")
@click.option("--own", metavar="GLOB", multiple=True, help="Add owned paths (repeatable).")
@click.option("--disown", metavar="GLOB", multiple=True, help="Remove owned paths.")
@click.option("--forbid", metavar="GLOB", multiple=True, help="Add forbidden paths.")
@click.option("--allow", metavar="GLOB", multiple=True, help="Remove forbidden paths.")
@env_option
@click.option("--unset-env", metavar="NAME", multiple=True, help="Remove an environment variable.")
@click.pass_obj
def command(
    app: App, session: str, model: str | None, mode: str | None, effort: str | None, budget: Budget | None, name: str | None,
    priority: int | None, own: tuple[str, ...], disown: tuple[str, ...], forbid: tuple[str, ...],
    allow: tuple[str, ...], env: tuple[str, ...], unset_env: tuple[str, ...],
) -> None:  # fmt: skip
    """Change SESSION. A running agent applies the changes at once; new environment
    variables reach it with the first prompt after its turn.

    \b
    Examples:
      rametctl set fix-login --mode acceptEdits
      rametctl set fix-login --budget 5 --name login
      rametctl set fix-login --budget 2Mtok
      rametctl set fix-login --budget none
      rametctl set fix-login --own 'docs/**' --disown src/api/
      rametctl set fix-login --env AWS_PROFILE=test --unset-env ANTHROPIC_API_KEY
    """
    changes = {"model": model, "mode": mode, "effort": effort, "name": name, "priority": priority}
    paths = [field for field, value in changes.items() if value is not None]
    if budget is not None:
        paths += [field for field, limit in budget.items() if limit is not None] or ["budget_usd", "budget_tokens"]
    paths += [field for field, given in (("owns", own or disown), ("forbids", forbid or allow)) if given]
    variables = variable_changes(app.environ, env, unset_env)
    if not paths and variables is None:
        raise UsageError("no changes were given", hint="see: rametctl set --help")
    found = session_pb2.Session(id=session_name(app, session))
    if own or disown or forbid or allow or name:  # the new patterns depend on the present ones, and the name may change
        found = get_session(app, session).session
    # A mask that names the budget without a value in the message removes the limit.
    values = session_pb2.Session(
        model=model or "", mode=mode_number(mode), effort=effort or "", **(budget or {}), name=name or "", priority=priority or 0,
        owns=_changed(found.owns, own, disown), forbids=_changed(found.forbids, forbid, allow),
    )  # fmt: skip
    request = session_pb2.UpdateSessionRequest(
        session_id=found.id, session=values, update_mask=FieldMask(paths=paths), variables=variables
    )
    answer = app.call(lambda daemon: daemon.sessions.UpdateSession, request)
    app.output.json(answer.session)
    taken = {"budget_tokens"} if budget == {} else set()  # said with the other budget
    said = [_said(path, answer.session) for path in paths if path not in taken]
    if variables is not None:
        said += [f"{name} set" for name in sorted({*variables.set, *variables.take})]
        said += [f"{name} removed" for name in variables.unset]
    app.output.show(line((found.name or answer.session.name, "bold"), f": {', '.join(said)}"))


def _changed(patterns: Sequence[str], more: Sequence[str], less: Sequence[str]) -> list[str]:
    """Return patterns with some added and some removed. Removing a part of a pattern adds an
    exception."""
    kept = [pattern for pattern in patterns if pattern not in less]
    out = [f"!{pattern}" for pattern in less if pattern not in patterns and kept]
    return list(dict.fromkeys([*kept, *more, *out]))


def _said(path: str, session: "Session") -> str:
    """Describe the changed fields with their new values."""
    match path:
        case "model":
            return f"model {session.model}" if session.model else "the agent's default model"
        case "effort":
            return f"effort {session.effort}, from the agent's next start on"
        case "mode":
            return f"mode {mode_name(session.mode)}"
        case "budget_usd":
            return f"budget {limit(session.budget_usd)}" if session.HasField("budget_usd") else "no budget"
        case "budget_tokens":
            return f"budget {tokens(session.budget_tokens)}"
        case "name":
            return f"name {session.name}"
        case "owns":
            return f"owns {(', '.join(session.owns))}" if session.owns else "owns no paths"
        case "forbids":
            if session.forbids:
                return f"does not write {(', '.join(session.forbids))}"
            where = f"only what it owns: {(', '.join(session.owns))}" if session.owns else "paths without another owner"
            return f"has no forbidden paths, and may write {where}"
        case _:
            return f"priority {session.priority}"
