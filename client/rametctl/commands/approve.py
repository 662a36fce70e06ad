"""`rametctl approve`: approve requests."""

from collections.abc import Sequence

import click
from ramet.v1 import attention_pb2
from ramet.v1.attention_pb2 import AttentionRequest

from rametctl.app import App
from rametctl.errors import UsageError
from rametctl.nouns.requests import edited_input, get_request, resolve, seen_request
from rametctl.options import Verb, mode_number, mode_option, requests_argument
from rametctl.render.request import kind_name


class ApproveCommand(Verb):
    """Options `--always` and `--session` with an optional rule: the next word is the rule if it has
    a blank, a bracket or a star."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, joined(args))


def joined(args: Sequence[str]) -> list[str]:
    """Join ``--always RULE`` to ``--always=RULE``. A word without a blank, a bracket or a star is
    the next request instead."""
    found: list[str] = []
    for arg in args:
        if found and found[-1] in {"--always", "--session"}:
            if any(sign in arg for sign in " (*") and not arg.startswith("-"):
                found[-1] += f"={arg}"
                continue
            found[-1] += "="
        found.append(arg)
    return [*found[:-1], f"{found[-1]}="] if found and found[-1] in {"--always", "--session"} else found


@click.command("approve", cls=ApproveCommand, short_help="Approve requests.")
@requests_argument
@click.option("--session", "for_session", metavar="[N|RULE]", help="Also allow such calls in this session.")
@click.option("--always", metavar="[N|RULE]", help="Also allow such calls in this repository.")
@click.option("-e", "--edit", is_flag=True, help="Edit the input in $EDITOR first.")
@mode_option("For plans: the permission mode to continue in.")
@click.pass_obj
def command(
    app: App, requests: tuple[str, ...], for_session: str | None, always: str | None, edit: bool, mode: str | None
) -> int:
    """Approve REQUEST...: ids, unique prefixes of ids, or sessions with exactly one
    open request. `rametctl inbox REQUEST` shows the details. On a terminal, a session's
    name means only a request that you have seen.

    --session and --always also store a rule: the first that the inbox offers, the
    N-th, or RULE. Ramet prints it with the command that removes it.

    \b
    Examples:
      rametctl approve fix-login docs
      rametctl approve k3xw9abc --always=2
      rametctl approve k3xw9abc --always "git commit *"
      rametctl approve fix-login --mode acceptEdits
    """
    if for_session is not None and always is not None:
        raise UsageError("--session and --always were both given", hint="--always includes the session")
    chosen = always if always is not None else for_session
    scope = attention_pb2.APPROVAL_SCOPE_ONCE
    if chosen is not None:
        scope = attention_pb2.APPROVAL_SCOPE_SESSION if always is None else attention_pb2.APPROVAL_SCOPE_ALWAYS
    if len(set(requests)) > 1 and (edit or chosen):
        raise UsageError("--edit and a rule apply to one request only", hint="approve the others without them")

    def fits(kind: str) -> bool:
        return kind == "plan" if mode else kind == "permission" if chosen is not None else kind != "question"

    def act(reference: str) -> object:
        reference = seen_request(app, reference, fits)
        approval = attention_pb2.Approval(scope=scope, mode=mode_number(mode))
        if edit or (chosen or "").isdecimal():
            found = get_request(app, reference)
            reference = found.id
            if edit:
                approval.updated_input_json = edited_input(app, found)
        if chosen and chosen.isdecimal():
            # The daemon says why another kind takes no rule.
            approval.rules.extend(offered(found, int(chosen)) if fits(kind_name(found)) else ())
        elif chosen:
            approval.rules.append(chosen)
        return resolve(app, reference, attention_pb2.Resolution(approve=approval))

    return app.for_each(requests, act)


def offered(request: "AttentionRequest", number: int) -> Sequence[str]:
    """Return the rules that the inbox shows under ``number``. Raise UsageError."""
    if not 1 <= number <= len(request.offers):
        hint = f"offers are 1 to {len(request.offers)}" if request.offers else "none is offered; give a rule"
        raise UsageError(f"there is no offer {number}", hint=hint)
    return request.offers[number - 1].rules
