"""The person's variables that calls carry: those of the client's list and of the configuration."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramet.environment import CARRIED_BY, METADATA, NAME, NEVER, carried, encode, matches, without_direnv

from rametctl.errors import UsageError

if TYPE_CHECKING:
    from ramet.v1.session_pb2 import VariableChanges

CREATING = frozenset({"CreateSession", "SpawnSession", "ApplyPlan"})


class CallerEnvironment:
    """The caller's variables as calls carry them: the names in `ramet.environment` and in the
    person's ``agents.claude.pass_env``.

    ``lasting``: a long-running program, whose environment may be older than a shell's; only its
    calls that create sessions carry variables. A session's calls carry none.
    """

    def __init__(self, environ: Mapping[str, str], config_file: Path, *, lasting: bool) -> None:
        self._environ, self._config_file = environ, config_file
        self._methods = frozenset() if "RAMET_TOKEN" in environ else CREATING if lasting else CARRIED_BY
        self._encoded: bytes | None = None

    def metadata(self, request: object) -> tuple[tuple[str, bytes], ...]:
        """Return the metadata that a call with ``request`` carries."""
        if type(request).__name__.removesuffix("Request") not in self._methods:
            return ()
        if place := getattr(request, "path", ""):  # a session of another project gets nothing of this one's .envrc
            return ((METADATA, self._encode(without_direnv(self._environ, place))),)
        if self._encoded is None:
            self._encoded = self._encode(self._environ)
        return ((METADATA, self._encoded),)

    def _encode(self, environ: Mapping[str, str]) -> bytes:
        return encode(carried(environ, _pass_env(self._config_file)))


def variable_changes(
    environ: Mapping[str, str], given: Iterable[str], removed: Iterable[str] = ()
) -> "VariableChanges | None":
    """Read ``--env NAME=VALUE``, ``--env NAME`` (taken from ``environ``) and ``--unset-env NAME``;
    None where there are none."""
    from ramet.v1 import session_pb2

    changes = session_pb2.VariableChanges(unset=list(removed))
    for item in given:
        name, equals, value = item.partition("=")
        if equals:
            changes.set[name] = _utf8(name, value)
        elif name in environ:
            changes.take[name] = _utf8(name, environ[name])
        else:
            raise UsageError(f"{name} is not set here", hint=f"export it, or give a value: --env {name}=VALUE")
    for name in (*changes.set, *changes.take, *changes.unset):
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} is not a name of an environment variable", hint="give NAME=VALUE or NAME")
        if matches(name, NEVER):
            raise UsageError(f"no session may have {name}", hint="leave it out")
    return changes if changes.set or changes.take or changes.unset else None


def _pass_env(file: Path) -> list[str]:
    """Return ``agents.claude.pass_env`` of the configuration; [] if the file is broken, which the
    daemon reports."""
    try:
        text = file.read_text(encoding="utf-8")
        if "pass_env" not in text:
            return []
        import tomllib

        value: Any = tomllib.loads(text)
        for key in ("agents", "claude", "pass_env"):
            value = value[key]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _utf8(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the value of {name} is not UTF-8", hint="give another value") from error
    return text
