"""Hosts of repositories: parse a remote's address, and find the page to open a pull request on."""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9._-]+):(?!/)(?P<path>[^\s]+)")
_SCHEMES = {"http", "https", "ssh", "git", "git+ssh", "ssh+git"}


@dataclass(frozen=True, slots=True)
class Place:
    """A repository on a server."""

    host: str
    path: str  # "OWNER/NAME", on GitLab with all groups

    @property
    def owner(self) -> str:
        return self.path.split("/", 1)[0]


def place_of(address: str) -> Place | None:
    """Host and path in a remote's address (URL or ``user@host:path``); None for a path on this machine."""
    if "://" in address:
        parts = urlsplit(address)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            return None
        host, path = parts.hostname, parts.path
    elif (match := _SCP.fullmatch(address)) is not None:
        host, path = match["host"].lower(), match["path"]
    else:
        return None
    path = path.strip("/").removesuffix(".git")
    if "/" not in path:
        return None
    return Place({"ssh.github.com": "github.com", "altssh.bitbucket.org": "bitbucket.org"}.get(host, host), path)


def may_be_github(place: Place) -> bool:
    """Whether the host is surely GitHub. Others are if `gh` is logged in to them."""
    others = ("gitlab", "bitbucket", "codeberg", "gitea", "forgejo", "sr.ht")
    return len(place.path.split("/")) == 2 and not any(word in place.host for word in others)


def opening_address(place: Place | None, *, branch: str, base: str, told: str, remote: str) -> str:
    """Page to open a pull request on: by the name of the host, the server's message ``told``, or the ``remote``'s address."""
    head, onto = quote(branch, safe="/"), quote(base, safe="/")
    if place is not None:
        root = f"https://{place.host}/{quote(place.path)}"
        if place.host == "github.com" or place.host.endswith(".ghe.com"):
            return f"{root}/compare/{onto}...{head}?expand=1"
        if "gitlab" in place.host:
            source, target = quote(branch, safe=""), quote(base, safe="")
            return (
                f"{root}/-/merge_requests/new?merge_request%5Bsource_branch%5D={source}"
                f"&merge_request%5Btarget_branch%5D={target}"
            )
        if "bitbucket" in place.host:
            return f"{root}/pull-requests/new?source={quote(branch, safe='')}&t=1"
        if any(word in place.host for word in ("codeberg", "gitea", "forgejo")):
            return f"{root}/compare/{onto}...{head}"
    return told or _without_secrets(remote)


def _without_secrets(address: str) -> str:
    """Remove a password from a URL."""
    return re.sub(r"(?<=://)[^/@]*@", "", address)
