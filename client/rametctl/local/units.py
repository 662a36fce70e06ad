"""The shipped service units with this installation filled in."""

import plistlib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

SYSTEMD = "rametd.service"
LAUNCHD = "dev.ramet.rametd.plist"
LABEL = "dev.ramet.rametd"

INHERITED = ("RAMET_HOME", "RAMET_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "PATH")
"""Variables of the person who installs that the daemon needs too: to meet the client at the same
place, and to find git."""


def template(name: str) -> str:
    """Return the text of a shipped unit: package data of an installed wheel, or the file of a
    checkout."""
    packaged = resources.files("rametctl").joinpath("units", name)
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    directory = "systemd" if name == SYSTEMD else "launchd"
    return (Path(__file__).parents[3] / directory / name).read_text(encoding="utf-8")


def systemd(rametd: Path, environ: Mapping[str, str]) -> str:
    """Return the user unit that runs ``rametd`` (absolute) with the variables of ``environ`` that
    the daemon needs."""
    lines = [f"ExecStart={_quoted(str(rametd))}"]
    lines += [f"Environment={_quoted(f'{name}={value}')}" for name, value in _inherited(environ).items()]
    return template(SYSTEMD).replace("ExecStart=@RAMETD@", "\n".join(lines))


def launchd(rametd: Path, environ: Mapping[str, str], logs: Path) -> bytes:
    """Return the LaunchAgent that runs ``rametd``; ``logs`` receives its output until its own log
    is open."""
    filled = _fill(plistlib.loads(template(LAUNCHD).encode()), {"@RAMETD@": str(rametd), "@LOGS@": str(logs)})
    return plistlib.dumps(filled | {"EnvironmentVariables": _inherited(environ)}, sort_keys=False)


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    # A unit cannot hold a line break.
    return {name: environ[name] for name in INHERITED if environ.get(name) and "\n" not in environ[name]}


def _quoted(word: str) -> str:
    """Quote a word of a unit file, see "Quoting" in systemd.syntax(7). ``%`` starts a specifier;
    ``$`` means nothing in a program's path nor in a variable's value."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _fill(value: Any, words: Mapping[str, str]) -> Any:
    match value:
        case str():
            for placeholder, word in words.items():
                value = value.replace(placeholder, word)
            return value
        case dict():
            return {key: _fill(item, words) for key, item in value.items()}
        case list():
            return [_fill(item, words) for item in value]
        case _:
            return value
