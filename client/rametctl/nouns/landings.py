"""Entries of merge queues for several verbs: list all pages, follow some to their end, report the
outcome."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ramet.v1 import landing_pb2
from ramet.v1.common_pb2 import Cursor
from ramet.v1.landing_pb2 import Landing

from rametctl.app import App
from rametctl.errors import ClientError, PersonNeededError, TimedOutError
from rametctl.render.landing import landing_line, landing_state

SETTLED = frozenset({"landed", "removed", "held"})
"""States that an entry leaves only upon a command."""


def all_landings(app: "App", *, repo: str, ended: bool = False) -> "list[Landing]":
    """Return the entries of all pages; ``repo`` "" means all repositories."""
    request = landing_pb2.ListLandingsRequest(repo=repo, include_ended=ended)
    return app.listed(lambda daemon: daemon.landing.ListLandings, request, lambda page: page.landings)


def wait_landings(app: "App", landings: "Sequence[Landing]", timeout: float | None) -> "list[Landing]":
    """Wait until all entries have ended or need a person; the daemon enforces ``timeout``. Raise
    TimedOutError."""
    request = landing_pb2.WaitLandingsRequest(landings=[each.id for each in landings], timeout_seconds=timeout or 0)
    answer = app.call(lambda daemon: daemon.landing.WaitLandings, request, doing="landing …")
    if answer.timed_out:
        raise TimedOutError(f"timed out: {summary(answer.landings)}", hint="landing continues; see: rametctl queue")
    return list(answer.landings)


def follow_landings(
    app: "App", landings: "Sequence[Landing]", after: "Cursor", timeout: float | None = None
) -> "list[Landing]":
    """Show a line for each change of entries until none changes by itself. Raise TimedOutError
    after ``timeout`` seconds."""
    from rametctl.connection.follow import follow

    latest = {each.id: each for each in landings}
    shown = {each.id: ("", "") for each in landings}

    def show(landing: "Landing") -> None:
        # A new position in the queue is not shown, nor is the reason of the previous line.
        text, reason = shown[landing.id]
        item = landing_line(landing, known=reason)
        if text != item.text:
            shown[landing.id] = item.text, landing.reason or reason
            app.output.show(item)

    for each in landings:
        show(each)
    with _progress_at_timeout(latest), app.connection.within(timeout):
        for step in follow(app.connection, after=after):
            if step.is_reset:
                return wait_landings(app, landings, app.connection.left())
            landing = step.event.landing_changed.landing if step.event is not None else None
            if landing is not None and landing.id in latest:
                latest[landing.id] = landing
                show(landing)
                if all(landing_state(each) in SETTLED for each in latest.values()):
                    break
    return list(latest.values())


@contextmanager
def _progress_at_timeout(latest: "Mapping[str, Landing]") -> Iterator[None]:
    """Within the block, a TimedOutError lists the progress of each entry."""
    try:
        yield
    except TimedOutError as error:
        raise TimedOutError(
            f"timed out: {summary(list(latest.values()))}", hint="landing continues; see: rametctl queue"
        ) from error


def summary(landings: "Sequence[Landing]") -> str:
    """Describe in one line which entries have landed and which wait."""
    return "; ".join(" ".join(landing_line(each).text.split()) for each in landings)


def check_landed(landings: "Sequence[Landing]", *, shown: bool) -> None:
    """Return if all have landed. Raise PersonNeededError if a person is needed, else ClientError.

    ``shown``: the reasons are on the screen already.
    """
    states = [landing_state(each) for each in landings]
    if "held" in states:
        held = landings[states.index("held")]
        name = shlex.quote(held.session_name)
        raise PersonNeededError(
            f"{held.session_name} needs you" + ("" if shown else f": {held.reason}"),
            hint=f"fix it (rametctl shell {name}), then: rametctl queue retry {name}, or: rametctl queue rm {name}",
        )
    if any(state != "landed" for state in states):
        index = next(index for index, state in enumerate(states) if state != "landed")
        raise ClientError(
            f"{landings[index].session_name} did not land: {states[index]}, {landings[index].reason}",
            hint="see: rametctl queue ls --all",
            reason="NOT_LANDED",
        )
