"""What a daemon that runs has, in the places where the tests put it."""

from pathlib import Path

from rametd.services.tokens import Tokens

from tests.support.daemon import DaemonProcess


def repo_of(daemon: DaemonProcess) -> Path:
    return daemon.sandbox.root / "repo"


def token_for(daemon: DaemonProcess, session_id: str) -> str:
    return Tokens.load(daemon.sandbox.root / "state" / "secrets" / "token.key").give(session_id)
