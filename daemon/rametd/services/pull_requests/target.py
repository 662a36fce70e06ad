"""The remote that a branch is pushed to, and the repository of its pull request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from rametd.config import Config
from rametd.domain.errors import InvalidInputError, RefNotFoundError, RemoteNotFoundError
from rametd.domain.models import Session
from rametd.git import Remote, RepositoryInfo, check_branch_name
from rametd.services.core import Core
from rametd.services.environments import for_git
from rametd.services.pull_requests.github import GitHub
from rametd.services.repos import info_of
from rametd.services.trust.settings import for_repository

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
    """Host and path in a remote's address (URL or ``user@host:path``); None for a path on this
    machine."""
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
    """Whether the repository may be on GitHub, by its path and the name of its host. Only `gh`
    knows."""
    others = ("gitlab", "bitbucket", "codeberg", "gitea", "forgejo", "sr.ht")
    return len(place.path.split("/")) == 2 and not any(word in place.host for word in others)


def opening_address(place: Place | None, *, branch: str, base: str, printed: str, remote: str) -> str:
    """Page on which to open a pull request: one known for the host, else the one that the server
    ``printed`` at the push, else the ``remote``'s address."""
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
    return printed or _without_secrets(remote)


def _without_secrets(address: str) -> str:
    """Remove a password from a URL."""
    return re.sub(r"(?<=://)[^/@]*@", "", address)


@dataclass(frozen=True, slots=True)
class Target:
    """``github`` is None unless `gh` is logged in to the remote's host; ``upstream`` is the parent
    repository of a fork."""

    info: RepositoryInfo
    config: Config
    remote: str
    address: str
    place: Place | None
    upstream: Place | None
    github: GitHub | None
    environment: Mapping[str, str]

    @property
    def slug(self) -> str:
        """``OWNER/NAME`` of the repository with the pull request."""
        place = self.upstream or self.place
        return place.path if place is not None else ""

    def head(self, branch: str) -> str:
        """The branch as GitHub names it across repositories."""
        assert self.place is not None
        return f"{self.place.owner}:{branch}"


async def find_target(core: Core, session: Session, wanted: str) -> Target:
    """``wanted`` names a remote, or is empty. Raises `RemoteNotFoundError`."""
    repo = await core.store.read(lambda reader: reader.repos.get(session.repo_id))
    info = await info_of(core, repo)
    config = await for_repository(core, repo, info)
    found = {remote.name: remote for remote in await core.git.remotes.list(info)}
    base_remote = await remote_of_base(core, info, session.base_ref, found)
    remote = choose(found, wanted, config.pr.remote, base_remote)
    environment = await for_git(core, session.id, forge=True)
    address = await core.git.remotes.push_address(info, remote.name, environment)
    place, github = await identify((remote.address, address), environment)
    upstream: Place | None = None
    if github is not None:
        chosen = next((each for each in found.values() if each.is_base), found.get(base_remote))
        other = place_of(chosen.address) if chosen is not None else None
        if other is not None and place is not None and other.host == place.host and other != place:
            upstream = other
    return Target(info, config, remote.name, address, place, upstream, github, environment)


async def identify(addresses: tuple[str, ...], environment: Mapping[str, str]) -> tuple[Place | None, GitHub | None]:
    """Find the first of the addresses that is on GitHub: the configured one, or the one to which
    git rewrites it for a mirror or proxy."""
    places = [place for address in dict.fromkeys(addresses) if (place := place_of(address)) is not None]
    for place in places:
        if may_be_github(place):
            github = GitHub(place.host, environment)
            if await github.is_logged_in():
                return place, github
    return (places[0] if places else None), None


async def remote_of_base(core: Core, info: RepositoryInfo, base_ref: str, found: Mapping[str, Remote]) -> str:
    """The remote in the name of the base (``origin/main``), or that the base tracks; "" for
    none."""
    named = next((name for name in found if base_ref.startswith(f"{name}/")), "")
    return named or await core.git.remotes.of_branch(info, base_ref)


def choose(found: Mapping[str, Remote], wanted: str, configured: str, base_remote: str) -> Remote:
    for name in (wanted, configured):
        if name and name not in found:
            raise RemoteNotFoundError(
                f"there is no remote {name!r}", hint=f"there are: {', '.join(found) or 'none'}", near=" ".join(found)
            )
    only = next(iter(found)) if len(found) == 1 else ""
    name = (
        wanted
        or configured
        or (base_remote if base_remote in found else "")
        or ("origin" if "origin" in found else only)
    )
    if not name:
        words = f"none of the remotes {', '.join(found)} is called origin" if found else "the repository has no remote"
        hint = "name one with --remote, or set pr.remote" if found else "add one: git remote add origin URL"
        raise RemoteNotFoundError(words, hint=hint)
    return found[name]


async def base_branch(core: Core, session: Session, target: Target, wanted: str) -> str:
    """Base branch of a pull request: ``wanted``, else the branch that the session started from,
    else the remote's main branch.

    Raises `InvalidInputError`, `BadNameError`, and what `GitHub` raises.
    """
    if wanted:
        return check_branch_name(wanted.removeprefix("refs/heads/").removeprefix(f"{target.remote}/"))
    names = [session.base_ref.removeprefix("refs/heads/")]
    names += [names[0].split("/", 1)[1]] if "/" in names[0] else []
    for name in names:
        if name != session.branch and await _is_branch(core, target, name):
            return name
    if name := await core.git.remotes.default_branch(target.info, target.remote):
        return name
    if target.github is not None:
        return str((await target.github.get(f"repos/{target.slug}")).json["default_branch"])
    raise InvalidInputError(
        f"{session.base_ref} is not a branch that a pull request can target", hint="name one with --base"
    )


async def _is_branch(core: Core, target: Target, name: str) -> bool:
    if await core.git.branches.tip(target.info, name) is not None:
        return True
    try:
        await core.git.branches.resolve_base(target.info, f"refs/remotes/{target.remote}/{name}")
    except RefNotFoundError:
        return False
    return True
