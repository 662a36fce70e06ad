"""What a repository could run, shown in full before the person trusts it."""

import tomllib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rametctl.lines import Line, line

if TYPE_CHECKING:
    from ramet.v1.repo_pb2 import GetTrustResponse, TrustItem

CLAUDE = "Claude's own; its hooks, servers and commands run with every agent"


def contents(trust: "GetTrustResponse") -> Iterator[Line]:
    """Lines that show every item, those first that the person has not trusted as they are."""
    from ramet.v1 import repo_pb2

    words = {repo_pb2.TRUST_STATE_CHANGED: "changed since you trusted it", repo_pb2.TRUST_STATE_NEW: "new"}
    marked = trust.repo.trusted
    for item in sorted(trust.items, key=lambda each: each.state == repo_pb2.TRUST_STATE_TRUSTED):
        about = CLAUDE if item.key.startswith((".claude", ".mcp")) else ""
        notes = ", ".join(filter(None, (words.get(item.state, "") if marked else "", about)))
        yield line((item.key, "bold"), (f"  ({notes})" if notes else "", "dim"))
        yield from (line(text, indent=2) for text in _texts(item))


def _texts(item: "TrustItem") -> Iterator[str]:
    """The lines of an item: of a setting, which is a line of TOML, each of its values."""
    text = item.text
    if text.startswith(f"{item.key} = "):
        value = tomllib.loads(text.replace(item.key, "value", 1))["value"]
        text = "\n".join(str(each) for each in (value if isinstance(value, list) else [value]))
    yield from text.rstrip().split("\n")


def difference(trust: "GetTrustResponse") -> Iterator[Line]:
    """The difference to what the person trusted; none for a repository that is not trusted."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    if trust.repo.trusted and trust.difference:
        yield from (line((text, styles.get(text[:1], ""))) for text in trust.difference.split("\n"))
