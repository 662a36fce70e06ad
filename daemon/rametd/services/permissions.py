"""Permission rules: kept by answers (`approve --session`, `--always`) and by people, for a repository or for one session."""

from collections.abc import Sequence

from ramet.v1 import attention_pb2

from rametd.domain.errors import InvalidInputError, RuleNotFoundError
from rametd.domain.models import OWNER, Request, RequestKind, Session, StoredRule
from rametd.rules import Effect, caution, completed, is_whole_line, parse
from rametd.services.ids import new_id
from rametd.store import Unit

EFFECTS = {
    attention_pb2.RULE_EFFECT_DENY: Effect.DENY,
    attention_pb2.RULE_EFFECT_ASK: Effect.ASK,
    attention_pb2.RULE_EFFECT_ALLOW: Effect.ALLOW,
}


def create(
    unit: Unit, *, repo_id: str, session_id: str, effect: Effect, text: str, source: str, request_id: str = ""
) -> StoredRule:
    """Store a rule; one that is there already stays. Raises `BadRuleError`."""
    parse(text, effect)
    return unit.rules.add(
        StoredRule(
            id=new_id(),
            repo_id=repo_id,
            session_id=session_id,
            effect=effect.value,
            text=text,
            source=source,
            request_id=request_id,
            matches=0,
            create_time=unit.now,
            match_time=None,
        )
    )


def cautions(effect: Effect, text: str) -> list[str]:
    """Warnings about a new rule that allows more than its words say."""
    found = caution(text) if effect is Effect.ALLOW else ""
    return [found] if found else []


def remember(
    unit: Unit, session: Session, request: Request, scope: int, wanted: Sequence[str] = ()
) -> list[StoredRule]:
    """The rules that an approval with a scope makes: the ``wanted`` ones, else the first offer.

    Raises `InvalidInputError` where no offer fits calls like this one, and `BadRuleError`.
    """
    if scope not in {attention_pb2.APPROVAL_SCOPE_SESSION, attention_pb2.APPROVAL_SCOPE_ALWAYS}:
        if wanted:
            raise InvalidInputError("a rule was given for an approval of this call alone", hint="add --always")
        return []
    if request.kind != RequestKind.PERMISSION:
        raise InvalidInputError(f"a {request.kind} is answered once", hint="leave --session and --always out")
    texts = [completed(text, request.tool) for text in wanted] or _first_offer(request)
    for_session = scope == attention_pb2.APPROVAL_SCOPE_SESSION
    return [
        create(
            unit,
            repo_id=session.repo_id,
            session_id=session.id if for_session else "",
            effect=Effect.ALLOW,
            text=text,
            source=OWNER,
            request_id=request.id,
        )
        for text in texts
    ]


def _first_offer(request: Request) -> list[str]:
    if not request.offers:
        raise InvalidInputError(
            "no rule could cover calls like this one without covering others",
            hint=f"`rametctl approve {request.id}` approves this call alone",
        )
    texts = request.offers[0].split("\n")
    if any(map(is_whole_line, texts)):
        raise InvalidInputError(
            "only a rule for this very line fits, which hardly ever matches again",
            hint='name one, as in --always "git commit *", or take this line with --always=1',
        )
    return texts


def delete(unit: Unit, rule_id: str) -> StoredRule:
    """Raises `RuleNotFoundError`."""
    rule = unit.rules.get(rule_id)
    if rule is None:
        raise RuleNotFoundError(f"there is no rule {rule_id!r}", hint="`rametctl rules ls` shows them")
    unit.rules.remove(rule_id)
    return rule
