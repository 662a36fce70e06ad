"""A scripted GitHub: the REST and GraphQL calls of `gh` over a small model, unencrypted on a unix
socket.

`gh config set http_unix_socket PATH` makes the real `gh` use it. Branches are read from the bare
repository that the tests push to, so that a pull request's head and a merge are real. Requests are
recorded; `fail` switches on outages, rate limits and faults.
"""

import contextlib
import hashlib
import json
import os
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.daemon import Sandbox, git

TOKEN = "scripted-token"
HERE = "https://github.com/acme/shop"
"""The address of the repository, as people write it."""
Json = dict[str, Any]


@dataclass
class Pull:
    """A pull request. ``head`` is None while its branch exists, afterwards the commit at which it
    was merged or closed."""

    number: int
    title: str
    body: str
    branch: str
    base: str
    draft: bool
    state: str = "open"
    merged: bool = False
    head: str | None = None
    mergeable: str = "MERGEABLE"
    merge_state: str = "CLEAN"
    review: str | None = None
    threads: list[Json] = field(default_factory=list)
    reviews: list[Json] = field(default_factory=list)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    status: int
    authorization: str
    payload: Any


@dataclass(frozen=True)
class Fault:
    """An error that answers requests whose path contains ``path``."""

    status: int
    headers: dict[str, str]
    message: str
    path: str


@dataclass
class GitHubModel:
    """The server's data. ``drafts``: whether the repository supports draft pull requests."""

    bare: Path
    slug: str = "acme/shop"
    drafts: bool = True
    pulls: list[Pull] = field(default_factory=list)
    checks: dict[str, list[Json]] = field(default_factory=dict)  # by commit
    statuses: dict[str, list[Json]] = field(default_factory=dict)
    logs: dict[int, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    fault: Fault | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    ids: int = 100

    # ── for tests ─────────────────────────────────────────────────────────────────────────────────

    def fail(self, status: int, message: str = "no", *, path: str = "", headers: dict[str, str] | None = None) -> None:
        """Answer with an error from now on, until `heal`."""
        self.fault = Fault(status, headers or {}, message, path)

    def heal(self) -> None:
        self.fault = None

    def calls(self, method: str = "", path: str = "") -> list[Request]:
        return [each for each in self.requests if method in {"", each.method} and path in each.path]

    def tip(self, branch: str) -> str | None:
        done = subprocess.run(
            ["git", "-C", str(self.bare), "rev-parse", "--verify", "-q", f"refs/heads/{branch}"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or None

    def pull(self, number: int) -> Pull:
        return next(each for each in self.pulls if each.number == number)

    def open(
        self, branch: str, base: str = "main", title: str = "by hand", body: str = "", *, draft: bool = False
    ) -> Pull:
        """Open a pull request as a person would."""
        self.ids += 1
        pull = Pull(self.ids, title, body, branch, base, draft)
        self.pulls.append(pull)
        return pull

    def merge(self, number: int) -> None:
        """Merge by a merge commit on the base, as the button does."""
        pull = self.pull(number)
        head = pull.head = self.tip(pull.branch)
        assert head is not None
        tree = self._git("rev-parse", f"{head}^{{tree}}")
        base = self._git("rev-parse", f"refs/heads/{pull.base}")
        commit = self._git("commit-tree", tree, "-p", base, "-p", head, "-m", f"Merge #{number}")
        self._git("update-ref", f"refs/heads/{pull.base}", commit)
        pull.state, pull.merged = "closed", True

    def check(self, pull: Pull, name: str, conclusion: str | None, *, summary: str = "", log: str | None = None) -> int:
        """Add a check run of the pull request's head; None as conclusion: it runs. Return its
        id."""
        self.ids += 1
        run = {"id": self.ids, "name": name, "conclusion": conclusion, "summary": summary, "actions": log is not None}
        self.checks.setdefault(self.head_of(pull), []).append(run)
        if log is not None:
            self.logs[self.ids] = log
        return self.ids

    def comment(
        self, pull: Pull, path: str, line: int, body: str, hunk: str = "@@ -1 +1 @@\n+new", author: str = "rita"
    ) -> Json:
        """Add a review thread with one comment."""
        self.ids += 1
        comment = {
            "id": f"C{self.ids}",
            "author": {"login": author},
            "body": body,
            "diffHunk": hunk,
            "url": "https://x",
        }
        thread = {
            "isResolved": False,
            "isOutdated": False,
            "path": path,
            "line": line,
            "originalLine": line,
            "comments": {"nodes": [comment]},
        }
        pull.threads.append(thread)
        return thread

    def head_of(self, pull: Pull) -> str:
        return pull.head or self.tip(pull.branch) or "0" * 40

    def _git(self, *arguments: str) -> str:
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        environment |= {f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["git", "-C", str(self.bare), *arguments], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    # ── answers ───────────────────────────────────────────────────────────────────────────────────

    def answer(self, method: str, path: str, payload: Any) -> tuple[int, Any]:
        """Return status and body: JSON, or bytes."""
        parts = urlsplit(path)
        if parts.path == "/graphql":
            return 200, self._graphql(payload["query"], payload.get("variables") or {})
        words = parts.path.strip("/").split("/")
        if words[:1] != ["repos"] or "/".join(words[1:3]) != self.slug:
            return 404, {"message": "Not Found"}
        match (method, words[3:]):
            case ("GET", []):
                return 200, {"full_name": self.slug, "default_branch": "main"}
            case ("GET", ["pulls"]):
                return 200, self._list(parse_qs(parts.query))
            case ("POST", ["pulls"]):
                return self._create(payload)
            case ("GET" | "PATCH", ["pulls", number]):
                found = next((each for each in self.pulls if str(each.number) == number), None)
                if found is None:
                    return 404, {"message": "Not Found"}
                for key in ("title", "body", "base"):
                    setattr(found, key, (payload or {}).get(key, getattr(found, key)))
                return 200, self._rest(found)
            case ("GET", ["commits", commit, "check-runs"]):
                return 200, {"check_runs": self.checks.get(commit, [])}
            case ("GET", ["commits", commit, "status"]):
                return 200, {"statuses": self.statuses.get(commit, [])}
            case ("GET", ["actions", "jobs", job, "logs"]) if int(job) in self.logs:
                return 200, self.logs[int(job)].encode()
        return 404, {"message": "Not Found"}

    def _list(self, query: dict[str, list[str]]) -> list[Json]:
        state = query.get("state", ["open"])[0]
        found = [each for each in self.pulls if state in {"all", each.state}]
        if (head := query.get("head", [""])[0]) and ":" in head:
            found = [each for each in found if self._label(each) == head]
        return [self._rest(each) for each in found]

    def _create(self, payload: Json) -> tuple[int, Any]:
        def refuse(message: str) -> tuple[int, Any]:
            return 422, {"message": "Validation Failed", "errors": [{"message": message}]}

        branch, base = payload["head"].rpartition(":")[2], payload["base"]
        head, onto = self.tip(branch), self.tip(base)
        if head is None:
            return refuse("head is invalid")
        if onto is None:
            return refuse("base is invalid")
        if any(each.branch == branch and each.base == base and each.state == "open" for each in self.pulls):
            return refuse(f"A pull request already exists for {payload['head']}.")
        if not self._git("rev-list", "-1", f"{onto}..{head}"):
            return refuse(f"No commits between {base} and {branch}")
        if payload.get("draft") and not self.drafts:
            return 422, {"message": "Draft pull requests are not supported in this repository."}
        made = self.open(branch, base, payload["title"], payload.get("body") or "", draft=bool(payload.get("draft")))
        return 201, self._rest(made)

    def _label(self, pull: Pull) -> str:
        return f"{self.slug.split('/')[0]}:{pull.branch}"

    def _rest(self, pull: Pull) -> Json:
        return {
            "number": pull.number,
            "node_id": f"PR_{pull.number}",
            "html_url": self._url(pull),
            "state": pull.state,
            "merged": pull.merged,
            "draft": pull.draft,
            "title": pull.title,
            "body": pull.body,
            "head": {"ref": pull.branch, "sha": self.head_of(pull), "label": self._label(pull)},
            "base": {"ref": pull.base},
            "updated": [
                pull.threads,
                pull.reviews,
                pull.review,
                pull.mergeable,
            ],  # changes the tag, as a newer time does at GitHub
        }

    def _url(self, pull: Pull) -> str:
        return f"https://github.com/{self.slug}/pull/{pull.number}"

    def _graphql(self, query: str, variables: Json) -> Json:
        if "mutation" in query:
            pull = self.pull(int(variables["id"].removeprefix("PR_")))
            pull.draft = "convertPullRequestToDraft" in query
            return {"data": {}}
        found = next((each for each in self.pulls if each.number == variables["number"]), None)
        if f"{variables['owner']}/{variables['name']}" != self.slug or found is None:
            words = f"Could not resolve to a PullRequest with the number of {variables['number']}."
            return {"data": {"repository": None}, "errors": [{"type": "NOT_FOUND", "message": words}]}
        return {"data": {"repository": {"pullRequest": self._node(found)}}}

    def _node(self, pull: Pull) -> Json:
        head = self.head_of(pull)
        contexts = [self._run(each) for each in self.checks.get(head, [])] + self.statuses.get(head, [])
        rollup = {"contexts": {"nodes": contexts}} if contexts else None
        return {
            "number": pull.number,
            "url": self._url(pull),
            "title": pull.title,
            "body": pull.body,
            "state": "MERGED" if pull.merged else pull.state.upper(),
            "isDraft": pull.draft,
            "headRefName": pull.branch,
            "headRefOid": head,
            "baseRefName": pull.base,
            "mergeable": pull.mergeable,
            "mergeStateStatus": pull.merge_state,
            "reviewDecision": pull.review,
            "commits": {"nodes": [{"commit": {"statusCheckRollup": rollup}}]},
            "reviewThreads": {"nodes": pull.threads},
            "reviews": {"nodes": pull.reviews},
        }

    def _run(self, run: Json) -> Json:
        conclusion = run["conclusion"]
        return {
            "__typename": "CheckRun",
            "databaseId": run["id"],
            "name": run["name"],
            "status": "IN_PROGRESS" if conclusion is None else "COMPLETED",
            "conclusion": conclusion.upper() if conclusion else None,
            "title": None,
            "summary": run["summary"],
            "detailsUrl": f"https://github.com/{self.slug}/runs/{run['id']}",
            "checkSuite": {"app": {"slug": "github-actions" if run["actions"] else "other"}},
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "_Server"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        """The requests are recorded instead."""

    def _serve(self) -> None:
        text = self._body()
        payload = json.loads(text) if text else None
        model = self.server.model
        with model.lock:
            status, headers, body = self._judge(model, payload)
            authorization = self.headers.get("Authorization", "")
            model.requests.append(Request(self.command, self.path, status, authorization, payload))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):
            self.wfile.write(body)
        self.close_connection = True

    do_GET = do_POST = do_PATCH = _serve  # noqa: N815 - as http.server looks for them

    def _judge(self, model: GitHubModel, payload: Any) -> tuple[int, dict[str, str], bytes]:
        headers = {"Content-Type": "application/json"}
        if (fault := model.fault) is not None and fault.path in self.path:
            return fault.status, headers | fault.headers, json.dumps({"message": fault.message}).encode()
        if self.headers.get("Authorization") != f"token {TOKEN}":
            return 401, headers, b'{"message": "Bad credentials"}'
        status, answer = model.answer(self.command, self.path, payload)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        if self.command != "GET" or status != 200:
            return status, headers, body
        etag = f'W/"{hashlib.sha256(body).hexdigest()}"'
        headers["ETag"] = etag
        if self.headers.get("If-None-Match") == etag:
            return 304, headers, b""
        return status, headers, body

    def _body(self) -> bytes:
        """Read the body, which `gh` sends in chunks."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = True

    def __init__(self, socket: Path, model: GitHubModel) -> None:
        self.model = model
        super().__init__(str(socket), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of a `gh` that a test killed."""


@contextlib.contextmanager
def serving(model: GitHubModel, socket: Path) -> Iterator[None]:
    """Serve on ``socket`` inside the block."""
    server = _Server(socket, model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
        socket.unlink(missing_ok=True)


def log_in(directory: Path, socket: Path) -> None:
    """A private configuration of `gh` (``$GH_CONFIG_DIR``): logged in, and connected to the
    socket."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "hosts.yml").write_text(
        f"github.com:\n    user: person\n    oauth_token: {TOKEN}\n    git_protocol: https\n"
    )
    (directory / "config.yml").write_text(f"http_unix_socket: {socket}\n")


def need_gh() -> None:
    """Skip a module without `gh`; fail in CI, which installs it."""
    if shutil.which("gh") is None and not os.environ.get("CI"):
        pytest.skip("gh is not installed", allow_module_level=True)


def redirect(sandbox: Sandbox, bare: Path, address: str = HERE) -> None:
    """Configure git to use the bare repository for ``address``."""
    config = sandbox.root / "home" / ".gitconfig"
    config.write_text(
        f'[user]\n\tname = A Person\n\temail = person@example.org\n[url "{bare}"]\n\tinsteadOf = {address}\n'
    )


def with_remote(sandbox: Sandbox, name: str, address: str = HERE) -> tuple[Path, Path]:
    """Create a repository and its bare remote ``origin``."""
    path = sandbox.repository(name)
    return path, add_remote(sandbox, path, address)


def add_remote(sandbox: Sandbox, path: Path, address: str = HERE) -> Path:
    """Create a bare repository as the ``origin`` of the one at ``path``, under the URL
    ``address``."""
    bare = sandbox.root / f"{path.name}.git"
    git(sandbox.root, "clone", "-q", "--bare", str(path), str(bare))
    redirect(sandbox, bare, address)
    git(path, "remote", "add", "origin", address)
    return bare
