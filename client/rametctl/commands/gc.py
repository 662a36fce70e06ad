"""`rametctl gc`: clear away what is done with."""

import click

from rametctl.app import App
from rametctl.options import Verb, new_request_id, repo_option, repo_reference


@click.command("gc", cls=Verb, short_help="Clear away what is done with; lists it unless told.")
@repo_option
@click.option("--yes", is_flag=True, help="Do it. Sessions go to the trash, and can be brought back.")
@click.option("--dry-run", is_flag=True, help="Only list it; so it is without --yes too.")
@click.pass_obj
def command(app: App, repo: str | None, yes: bool, dry_run: bool) -> None:
    """List what can go, and what stays and why: sessions whose work has landed
    (squashed and rebased too), that nobody has touched for long, or that were
    archived long ago, and what was left of sessions that are gone. What is dirty, at
    work, on no other branch, or not made by Ramet is never among it.

    \b
    Examples:
      rametctl gc
      rametctl gc --yes
    """
    from ramet.jsonify import to_json
    from ramet.v1 import worktree_pb2

    from rametctl.errors import UsageError
    from rametctl.lines import line
    from rametctl.render.format import plural, size

    if yes and dry_run:
        raise UsageError("--yes and --dry-run were both given", hint="give one of them")
    request = worktree_pb2.CollectGarbageRequest(
        repo=repo_reference(app, repo) if repo else "", dry_run=not yes, request_id=new_request_id()
    )
    with app.output.spinner("looking …" if not yes else "clearing away …"):
        answer = app.connection.call(lambda daemon: daemon.worktrees.CollectGarbage, request)
    if app.output.json_mode:
        app.output.json(to_json(answer))
        return
    if not answer.items:
        app.output.text("nothing is there that could go")
        return
    items = sorted(answer.items, key=lambda item: (item.verdict == "kept", item.kind, item.name))
    with_repo = len({item.repo for item in items}) > 1
    app.output.show(
        *app.output.table(
            ["WHAT", *(["REPO"] if with_repo else []), "NAME", "VERDICT", "SIZE", "WHY"],
            [
                [
                    (item.kind, "dim"),
                    *([(item.repo, "")] if with_repo else []),
                    (item.name, "bold"),
                    ("removed" if item.removed else item.verdict, "dim" if item.verdict == "kept" else "yellow"),
                    (size(item.bytes), ""),
                    (item.reason, "dim"),
                ]
                for item in items
            ],
            shrink=[("WHY", 20), ("NAME", 20), ("WHY", 10), ("NAME", 8)],
            right=frozenset({"SIZE"}),
        )
    )
    going = sum(item.removed if yes else item.verdict != "kept" for item in items)
    if yes:
        app.output.text(f"removed {plural(going, 'item')}, {size(answer.bytes)} freed")
        if any(item.removed and item.kind == "session" for item in items):
            app.output.text("to bring a session back: rametctl trash restore NAME")
    elif going:
        app.output.show(line(f"{plural(going, 'item')} can go, {size(answer.bytes)}: ", ("rametctl gc --yes", "bold")))
    else:
        app.output.text("all of it stays")
