"""The web page: the server's time for the first page, and its cost beside busy agents with open
tabs."""

import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.bench.figures import cpu_time, resident
from tests.support.daemon import Sandbox
from tests.support.eventually import eventually_sync


@dataclass(frozen=True)
class Web:
    """A server, and the cookie of a browser."""

    pid: int
    host: str
    cookie: str

    def get(self, path: str) -> HTTPConnection:
        connection = HTTPConnection(self.host)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        return connection


@contextmanager
def served(sandbox: Sandbox) -> Iterator[Web]:
    """Start `rametctl web` and open its link."""
    output = sandbox.root / "web.out"
    with output.open("wb") as log:
        command = [sys.executable, "-m", "rametctl", "web", "--port", "0"]
        process = subprocess.Popen(command, env=sandbox.environ, cwd=sandbox.root, stdout=log, stderr=log)
    try:
        host, token = eventually_sync(lambda: _link(output))
        with closing(HTTPConnection(host)) as connection:
            connection.request("POST", "/login", json.dumps({"token": token}), {"Origin": f"http://{host}"})
            cookie = connection.getresponse().headers["Set-Cookie"].partition(";")[0]
        yield Web(process.pid, host, cookie)
    finally:
        process.terminate()
        process.wait()


def _link(output: Path) -> tuple[str, ...]:
    line, end, _ = output.read_text().partition("\n")
    return (line.split("/")[2], line.partition("#")[2]) if end else ()


def first_page(sandbox: Sandbox, shown: str, times: int) -> float:
    """Return the median milliseconds from the request of the overview to its last byte."""
    taken = []
    with served(sandbox) as web:
        for _ in range(times + 1):
            began = time.perf_counter()
            with closing(web.get("/")) as connection:
                page = connection.getresponse().read().decode()
            taken.append((time.perf_counter() - began) * 1000)
            assert shown in page
    return statistics.median(taken[1:])


def interactive(sandbox: Sandbox, shown: str, times: int) -> float:
    """Return the median milliseconds in Chromium from the navigation to the overview until its keys
    and forms work."""
    taken = []
    with served(sandbox) as web, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        name, _, value = web.cookie.partition("=")
        context = browser.new_context(base_url=f"http://{web.host}")
        context.add_cookies([{"name": name, "value": value, "url": f"http://{web.host}"}])
        page = context.new_page()
        for _ in range(times + 1):
            page.goto("/")
            taken.append(float(page.evaluate("performance.getEntriesByName('interactive')[0].startTime")))
            assert shown in page.content()
        browser.close()
    return statistics.median(taken[1:])


def beside(sandbox: Sandbox, paths: Sequence[str], seconds: float) -> tuple[float, float]:
    """Return its share of one core in percent with a tab open at each path, and the MB by which it
    grew in the second half."""
    with served(sandbox) as web:
        streams = [web.get(f"/live?at={path}") for path in paths]
        got = [0] * len(paths)

        def read(index: int) -> None:
            with closing(streams[index]) as stream, stream.getresponse() as answer:
                while piece := answer.read1(65536):
                    got[index] += len(piece)

        readers = [threading.Thread(target=read, args=(index,)) for index in range(len(paths))]
        for reader in readers:
            reader.start()
        time.sleep(1)
        began, used = time.perf_counter(), cpu_time(web.pid)
        time.sleep(seconds / 2)
        half = resident(web.pid)
        time.sleep(seconds / 2)
        growth = resident(web.pid) - half
        share = (cpu_time(web.pid) - used) / (time.perf_counter() - began) * 100
    for reader in readers:
        reader.join()
    assert all(got)
    return share, growth
