"""Do one thing to several sessions or requests, and continue if one fails."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rametctl.errors import ClientError

if TYPE_CHECKING:
    from rametctl.app import App


def for_each(app: "App", names: Sequence[str], act: Callable[[str], object]) -> int:
    """Call ``act`` for every name and return the exit code of the first failure, or 0.

    ``act`` prints for people and returns the JSON: one object for one name, an array for several, with an error in place of a failed
    name. Raise the ClientError of a single name.
    """
    unique = list(dict.fromkeys(names))
    if len(unique) == 1:
        shown = act(unique[0])
        app.output.json(shown)
        return 0
    status = 0
    answers: list[object] = []
    for name in unique:
        try:
            answers.append(act(name))
        except ClientError as error:
            status = status or error.exit_code
            app.output.note(f"rametctl: {name}: {error.message}" + (f"; {error.hint}" if error.hint else ""))
            answers.append({"error": {"reason": error.reason, "message": error.message, "hint": error.hint}})
    app.output.json(answers)
    return status
