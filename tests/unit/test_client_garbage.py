"""Output of gc: a table for each repository, and a summary line."""

import io

from ramet.v1 import worktree_pb2
from rametctl.console.output import Output
from rametctl.render.garbage import done, listing


def answer(*items: tuple[str, str, str, str], removed: bool = False) -> worktree_pb2.CollectGarbageResponse:
    """Build the items from (repo, kind, name, verdict)."""
    return worktree_pb2.CollectGarbageResponse(
        items=[
            worktree_pb2.Garbage(
                repo=repo, kind=kind, name=name, verdict=verdict, reason="why", removed=removed and verdict != "kept"
            )
            for repo, kind, name, verdict in items
        ],
        bytes=2048,
    )


ITEMS = (
    ("shop", "session", "one", "merged"),
    ("shop", "branch", "ramet/a", "orphaned"),
    ("shop", "branch", "ramet/b", "orphaned"),
    ("shop", "ref", "refs/ramet/x", "orphaned"),
    ("shop", "session", "dirty", "kept"),
    ("", "agent", "abc-1", "orphaned"),
    ("api", "worktree", "/tree", "stale"),
    ("web", "session", "stays", "kept"),
)


def test_the_last_line_of_a_dry_run_names_the_command_what_it_does_and_where() -> None:
    output = Output(io.StringIO(), io.StringIO(), {})
    lines = [line.text for line in listing(output, answer(*ITEMS), "rametctl gc --yes")]
    assert lines[-1] == (
        "rametctl gc --yes would delete 1 worktree in api, move 1 session to the trash and delete 2 branches and 1 ref in shop, "
        "delete 1 agent directory; that frees 2.0 KiB"
    )
    assert [line for line in lines if line in {"api", "shop", "web", "in no repository"}] == [
        "api",
        "shop",
        "web",
        "in no repository",
    ]
    assert [line.split()[1] for line in lines if line.startswith("session")] == ["one", "dirty", "stays"]


def test_a_done_action_has_the_same_words() -> None:
    output = Output(io.StringIO(), io.StringIO(), {})
    lines = [line.text for line in done(output, answer(*ITEMS[:5], removed=True))]
    assert lines[-2:] == [
        "moved 1 session to the trash and deleted 2 branches and 1 ref in shop; 2.0 KiB freed",
        "to bring a session back: rametctl restore NAME",
    ]
    assert [line.text for line in done(output, answer(*ITEMS[4:5]))][-1] == "nothing was removed"
    assert [line.text for line in listing(output, answer(*ITEMS[4:5]), "x")][-1] == "nothing to clear"
