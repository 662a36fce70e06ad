"""Checks of what people type about a session."""

import math
from collections.abc import Sequence

from rametd.agents.base import AgentKind, media_type, require
from rametd.domain.errors import BadNameError, EmptyPromptError, InvalidInputError, PromptTooLargeError
from rametd.domain.models import EFFORTS

MOST_TOKENS = 1 << 63
PROMPT_LIMIT = 16 << 20
IMAGES = 10
IMAGE_LIMIT = 3_750_000
IMAGES_LIMIT = 11_000_000
"""Maximum number of images of a prompt, bytes of one (models read 5 MB of base64), and bytes of
all."""
NAME_LIMIT = 200


def check_prompt(prompt: str, *, empty_is_fine: bool = False) -> None:
    """Raise `EmptyPromptError` for a blank prompt, `PromptTooLargeError` for one over 16 MiB."""
    if not prompt.strip() and not (empty_is_fine and not prompt):
        raise EmptyPromptError("the prompt is empty", hint="say what the agent should do")
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > PROMPT_LIMIT:
        raise PromptTooLargeError(
            f"the prompt has {size:,} bytes (at most {PROMPT_LIMIT:,})",
            hint="put the material into a file in the repository and name the file in the prompt",
        )


def check_images(kind: AgentKind, images: Sequence[bytes]) -> None:
    """Raise `AgentUnableError` for images to an agent that reads none, `PromptTooLargeError` for
    too many or too large ones, `InvalidInputError` for another format."""
    if images:
        require(kind, "images", hint="name the files in the prompt")
    if len(images) > IMAGES or sum(map(len, images)) > IMAGES_LIMIT or any(len(each) > IMAGE_LIMIT for each in images):
        limits = f"{IMAGES} images, each {IMAGE_LIMIT:,} bytes, {IMAGES_LIMIT:,} together"
        raise PromptTooLargeError(
            f"the images are too large (at most {limits})", hint="make them smaller, or name the files in the prompt"
        )
    if not all(map(media_type, images)):
        raise InvalidInputError("an image is not a PNG, JPEG, GIF or WebP file", hint="convert it first")


def check_model(model: str) -> str:
    """Raise `InvalidInputError` for a model that would be an option of the agent's program, or is
    not printable."""
    if model.startswith("-") or len(model) > NAME_LIMIT or not model.isprintable():
        raise InvalidInputError(f"invalid model: {model[:40]!r}", hint="use a name such as opus, sonnet or haiku")
    return model


def check_effort(effort: str) -> str:
    """Raise `InvalidInputError` for an unknown effort."""
    if effort and effort not in EFFORTS:
        raise InvalidInputError(f"invalid effort: {effort[:40]!r}", hint=f"use one of: {', '.join(EFFORTS)}")
    return effort


def check_budget(dollars: float | None) -> float | None:
    """Raise `InvalidInputError` unless it is an amount above 0, or None."""
    if dollars is not None and not 0 < dollars < math.inf:
        raise InvalidInputError(
            f"invalid budget: {dollars} USD (must be greater than 0)", hint="give an amount, or none for no limit"
        )
    return dollars


def check_token_budget(tokens: int | None) -> int | None:
    """Raise `InvalidInputError` unless it is a number of tokens above 0, or None."""
    if tokens is not None and not 0 < tokens < MOST_TOKENS:
        raise InvalidInputError(
            f"invalid budget: {tokens} tok (must be greater than 0)", hint="give a number over 0, or none for no limit"
        )
    return tokens


def check_name(name: str) -> str:
    """Raise `BadNameError` for a name that is blank, too long or not printable."""
    if not name.strip() or len(name) > NAME_LIMIT or any(not character.isprintable() for character in name):
        raise BadNameError(
            f"invalid name: {name[:40]!r}",
            hint=f"use 1 to {NAME_LIMIT} printable characters, not only spaces",
        )
    return name
