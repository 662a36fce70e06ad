"""GitHub through the person's `gh` and its login.

This runs only `gh api`. Commands such as `gh pr create` prompt, push and print differently from
release to release, while the flags used here (``--hostname``, ``--method``, ``--header``,
``--input``, ``--include``) and the REST and GraphQL interfaces are stable. `gh api` also shows the
status and headers, which conditional requests and ``Retry-After`` need.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ramet.words import plural

from rametd.domain.errors import ForgeLoginError, ForgeRefusedError, ForgeUnavailableError
from rametd.platform import groups

DEADLINE_S: Final = 30.0
LARGEST_ANSWER: Final = 32 << 20
NOT_LOGGED_IN: Final = 4
"""Exit code of `gh` without a token."""
QUIET: Final = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1", "GH_PAGER": "cat"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers by lower-case name, and body. 304 means unchanged."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def etag(self) -> str:
        return self.headers.get("etag", "")

    @property
    def json(self) -> Any:
        """Parse the body. Raises `ForgeUnavailableError` if it is not JSON, as a proxy's page."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise ForgeUnavailableError(
                "GitHub's answer is not JSON", hint="a proxy may be in the way; try again later"
            ) from None


class GitHub:
    """A GitHub host, for one person with their ``environment``."""

    def __init__(self, host: str, environment: Mapping[str, str], *, deadline: float = DEADLINE_S) -> None:
        self.host = host
        self._environment = {**environment, **QUIET}
        self._deadline = deadline

    async def is_logged_in(self) -> bool:
        """Whether `gh` is installed and has a token for the host. Sends no request."""
        try:
            code, output, _ = await self._run("auth", "token", "--hostname", self.host)
        except ForgeLoginError:
            return False
        return code == 0 and bool(output.strip())

    async def get(self, path: str, *, etag: str = "") -> Answer:
        """Get a resource. Raises `ForgeLoginError`, `ForgeRefusedError`, `ForgeUnavailableError`,
        as do `send` and `query`."""
        return await self._request("GET", path, etag=etag)

    async def send(self, method: str, path: str, payload: Mapping[str, Any]) -> Any:
        """Send a request that changes something; return its answer."""
        return (await self._request(method, path, payload=payload)).json

    async def query(self, text: str, **variables: Any) -> dict[str, Any]:
        """Run a GraphQL query or mutation; return its data."""
        answer = (await self._request("POST", "graphql", payload={"query": text, "variables": variables})).json
        if errors := answer.get("errors"):
            words = "; ".join(str(error.get("message", error)) for error in errors)
            if any(error.get("type") == "RATE_LIMITED" for error in errors):
                raise _unavailable(f"GitHub's rate limit is used up: {words}", 0.0)
            if any(error.get("type") == "NOT_FOUND" for error in errors):
                raise _refused(404, words)
            raise _refused(200, words)
        data: dict[str, Any] = answer["data"]
        return data

    async def _request(
        self, method: str, path: str, *, payload: Mapping[str, Any] | None = None, etag: str = ""
    ) -> Answer:
        arguments = ["api", "--hostname", self.host, "--include", "--method", method]
        if etag:
            arguments += ["--header", f"If-None-Match: {etag}"]
        if payload is not None:
            arguments += ["--input", "-"]
        body = None if payload is None else json.dumps(payload).encode()
        code, output, words = await self._run(*arguments, path, stdin=body)
        answer = _parse(output)
        if answer is None:
            if code == NOT_LOGGED_IN:
                raise ForgeLoginError(f"gh is not logged in to {self.host}", hint=f"run: gh auth login -h {self.host}")
            raise _unavailable(f"{self.host} cannot be reached: {words or f'gh exited with {code}'}", 0.0)
        return _judge(answer, self.host)

    async def _run(self, *arguments: str, stdin: bytes | None = None) -> tuple[int, bytes, str]:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await groups.start(
                "gh",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL if stdin is None else pipe,
                stdout=pipe,
                stderr=pipe,
                env=self._environment,
                cwd="/",
            )
        except (FileNotFoundError, PermissionError):
            raise ForgeLoginError(
                "gh was not found",
                hint="install GitHub's command line tool (https://cli.github.com) and log in with it",
            ) from None
        try:
            async with asyncio.timeout(self._deadline):
                output, errors = await groups.communicate(process, stdin, most=LARGEST_ANSWER)
        except TimeoutError:
            raise _unavailable(f"{self.host} did not answer within {self._deadline:.0f} seconds", 0.0) from None
        except groups.OutputError as error:
            raise _unavailable(f"{self.host}: gh {error}", 0.0) from None
        finally:
            await groups.end(process)
        assert process.returncode is not None
        return process.returncode, output, " ".join(errors.decode(errors="replace").split())[:400]


def _parse(output: bytes) -> Answer | None:
    """Parse the output of ``--include``: a status line, headers, an empty line, the body."""
    head, *rest = re.split(rb"\r?\n\r?\n", output, maxsplit=1)
    first, *lines = head.decode(errors="replace").splitlines() or [""]
    words = first.split()
    if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
        return None
    pairs = (line.partition(":") for line in lines)
    return Answer(int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}, b"".join(rest))


def _judge(answer: Answer, host: str) -> Answer:
    """Return a good answer; raise an error for any other."""
    status, headers = answer.status, answer.headers
    if status < 300 or status == 304:
        return answer
    words = _words(answer)
    limited = headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers or "rate limit" in words.lower()
    if status == 429 or (status == 403 and limited):
        raise _unavailable(f"{host} limits the rate of requests: {words}", _patience(headers))
    if status >= 500:
        raise _unavailable(f"{host} fails ({status}): {words}", _patience(headers))
    if status == 401:
        raise ForgeLoginError(f"{host} does not accept gh's token", hint=f"run: gh auth refresh -h {host}")
    raise _refused(status, words)


def _words(answer: Answer) -> str:
    """GitHub's message, with its details on fields."""
    try:
        data = json.loads(answer.body)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        return f"HTTP {answer.status}"
    details = [each.get("message") or each.get("code", "") for each in data.get("errors", []) if isinstance(each, dict)]
    return "; ".join(str(part) for part in [data.get("message", f"HTTP {answer.status}"), *details] if part)


def _patience(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait, 0 if it does not. The reset of a rate limit is a time
    of the server's clock."""
    if (after := headers.get("retry-after", "")).isdigit():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and (reset := headers.get("x-ratelimit-reset", "")).isdigit():
        from email.utils import parsedate_to_datetime  # 10 ms of the daemon's start, for a rare answer

        with suppress(ValueError):
            return max(0.0, float(reset) - parsedate_to_datetime(headers.get("date", "")).timestamp())
    return 0.0


def _unavailable(words: str, retry_after: float) -> ForgeUnavailableError:
    hint = f"try again in {plural(round(retry_after), 'second')}" if retry_after else "try again later"
    return ForgeUnavailableError(words[:600], hint=hint, retry_after=str(retry_after))


def _refused(status: int, words: str) -> ForgeRefusedError:
    return ForgeRefusedError(f"GitHub refused: {words[:600]}", hint="see what it says there", status=str(status))
