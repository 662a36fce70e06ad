"""`rametctl mcp`: serve the agent tools to an MCP client."""

import click

from rametctl.app import App


@click.command("mcp", short_help="Serve the agent tools over MCP on stdio.")
@click.pass_obj
def command(app: App) -> None:
    """Serve MCP on standard input and output until end of input. The tools spawn
    sessions, follow them and send them messages. Inside a session they act as that
    session, elsewhere as you, and create sessions in the current directory's
    repository.

    \b
    Example:
      claude mcp add ramet -- rametctl mcp
    """
    import asyncio

    from rametctl.toolserver import serve

    try:
        asyncio.run(serve(app))
    except* BrokenPipeError:
        pass  # the MCP client is gone
