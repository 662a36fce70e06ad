"""Receivers of notifications: an HTTP server that records requests, and a program that records its
runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

PROGRAM = """#!/bin/sh
umask 077
{{ printf '%s\\n' "$@"; cat; }} > {log}.$$.new
mv {log}.$$.new {log}.$(date +%s%N).$$
exit {code}
"""


@dataclass
class Posted:
    path: str
    headers: dict[str, str]
    document: dict[str, Any]


@dataclass
class Receiver:
    """A server on a free port. ``answers`` are the statuses of the next answers, 200 after them."""

    url: str
    posted: list[Posted] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    location: str = ""


@contextmanager
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.posted.append(Posted(self.path, dict(self.headers), json.loads(body)))
            self.send_response(found.answers.pop(0) if found.answers else 200)
            if found.location:
                self.send_header("Location", found.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def program(path: Path, *, code: int = 0) -> Path:
    """Write an executable that records its arguments and its standard input, and exits with
    ``code``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PROGRAM.format(log=path.with_suffix(".run"), code=code))
    path.chmod(0o700)
    return path


def runs(path: Path) -> list[str]:
    """Return arguments and input of each run of the program, in order."""
    found = [each for each in path.parent.glob(f"{path.stem}.run.*") if not each.name.endswith(".new")]
    return [each.read_text() for each in sorted(found, key=lambda each: each.name)]
