"""Hosts of URLs: the host of ``https://example.com@evil.org`` is evil.org."""

import re
from urllib.parse import urlsplit

from rametd.domain.errors import BadRuleError

_HOST = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_DEVIATING = re.compile("[ß\u1e9eς\u200c\u200d]")  # IDNA 2003 and 2008 encode these differently
_ODD = re.compile(r"[\\\s\x00-\x20\x7f]")


def domain(text: str, specifier: str, *, allows: bool) -> str:
    """The host of ``domain:example.com`` in its ASCII form. Raises BadRuleError."""
    kind, colon, name = specifier.partition(":")
    host = _ascii(name)
    if kind != "domain" or not colon or host is None:
        raise BadRuleError(f"rule {text!r}: it names no domain", hint="write WebFetch(domain:example.com)", rule=text)
    if allows and "." not in host and host != "localhost":
        raise BadRuleError(
            f"rule {text!r}: it would allow a whole top-level domain", hint="name a domain under it", rule=text
        )
    return host


def covers(rule: str, host: str) -> bool:
    """Whether the domain ``rule`` equals ``host`` or is a parent of it."""
    return host == rule or host.endswith("." + rule)


def host(url: str) -> str | None:
    """The host of a URL; None if there is none, or if parsers may disagree about it."""
    if _ODD.search(url):
        return None
    try:
        parts = urlsplit(url)
        name = parts.hostname
        _ = parts.port  # raises if the port is not a number
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not name or "%" in name or _DEVIATING.search(name):
        return None
    return _ascii(name)


def hosts(url: str) -> set[str]:
    """All hosts that some parser may find: browsers read a backslash as a slash, and skip tabs and
    extra slashes."""
    cleaned = re.sub(r"[\t\r\n]", "", url.strip()).replace("\\", "/")
    cleaned = re.sub(r"^([A-Za-z][A-Za-z0-9+.-]*):/*", r"\1://", cleaned)
    if "://" not in cleaned:
        cleaned = f"https://{cleaned}"
    found: set[str] = set()
    for reading in (url, cleaned):
        try:
            name = urlsplit(reading).hostname
        except ValueError:
            continue
        if name and (ascii_name := _ascii(name)):
            found.add(ascii_name)
    return found


def _ascii(name: str) -> str | None:
    """Lower-case, IDN-encoded name without a trailing dot."""
    try:
        encoded = name.strip().encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        return None
    return encoded if _HOST.fullmatch(encoded) else None
