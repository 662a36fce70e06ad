"""What people type about a session, judged before anything is made of it."""

import math

from rametd.domain.errors import BadNameError, EmptyPromptError, InvalidInputError, PromptTooLargeError
from rametd.domain.models import EFFORTS

MOST_TOKENS = 1 << 63
PROMPT_LIMIT = 16 << 20
NAME_LIMIT = 200


def check_prompt(prompt: str, *, empty_is_fine: bool = False) -> None:
    """Raises `EmptyPromptError` for one without a word and `PromptTooLargeError` for one over 16 MiB."""
    if not prompt.strip() and not (empty_is_fine and not prompt):
        raise EmptyPromptError("the prompt is empty", hint="say what the agent is to do")
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > PROMPT_LIMIT:
        raise PromptTooLargeError(
            f"the prompt has {size:,} bytes; {PROMPT_LIMIT:,} are the limit",
            hint="put the material into a file in the repository and name the file in the prompt",
        )


def check_model(model: str) -> str:
    """Raises `InvalidInputError` for what the agent's program would take for another option, or could not be given at all."""
    if model.startswith("-") or len(model) > NAME_LIMIT or not model.isprintable():
        raise InvalidInputError(f"{model[:40]!r} cannot be a model", hint="use a name such as opus, sonnet or haiku")
    return model


def check_effort(effort: str) -> str:
    """Raises `InvalidInputError` for an effort that no agent has."""
    if effort and effort not in EFFORTS:
        raise InvalidInputError(f"there is no effort {effort[:40]!r}", hint=f"use one of: {', '.join(EFFORTS)}")
    return effort


def check_budget(dollars: float | None) -> float | None:
    """Raises `InvalidInputError` unless it is an amount of money, or None."""
    if dollars is not None and not 0 < dollars < math.inf:
        raise InvalidInputError(
            f"a budget of {dollars} USD is none", hint="give an amount over 0, or none for no limit"
        )
    return dollars


def check_token_budget(tokens: int | None) -> int | None:
    """Raises `InvalidInputError` unless it is a number of tokens, or None."""
    if tokens is not None and not 0 < tokens < MOST_TOKENS:
        raise InvalidInputError(
            f"a budget of {tokens} tokens is none", hint="give a number over 0, or none for no limit"
        )
    return tokens


def check_name(name: str) -> str:
    """Raises `BadNameError` for a label that no screen could show."""
    if not name.strip() or len(name) > NAME_LIMIT or any(not character.isprintable() for character in name):
        raise BadNameError(
            f"{name[:40]!r} cannot be a name",
            hint=f"use 1 to {NAME_LIMIT} printable characters, with one that is not a space",
        )
    return name
