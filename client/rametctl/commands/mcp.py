"""`rametctl mcp`: the tools for agents, for any MCP client."""

import click

from rametctl.app import App


@click.command("mcp", short_help="The tools for agents as an MCP server on stdio.")
@click.pass_obj
def command(app: App) -> None:
    """Speak MCP over standard input and output until its end: the tools with which
    an agent spawns sessions, follows them and talks to them. Inside a session it
    acts as that session, anywhere else as you, and makes sessions in the
    repository around the current directory.

    \b
    Example:
      claude mcp add ramet -- rametctl mcp
    """
    import asyncio

    from rametctl.toolserver import serve

    try:
        asyncio.run(serve(app))
    except* BrokenPipeError:
        pass  # whoever asked is gone
