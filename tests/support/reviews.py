"""A session with changes of every kind, for tests of reviews."""

import struct
import zlib
from pathlib import Path

from ramet.v1 import session_pb2

from tests.support.daemon import IDLE, Client, git

ROWS = 7000
"""Functions of three lines each in the large file."""
HOSTILE = "<img src=x onerror=alert(1)>\u202e.py"
CODE = "import json\n\n\ndef read(text):\n    return json.loads(text)\n\n\n" + "".join(
    f"n{i} = {i}\n" for i in range(40)
)


def png(red: int) -> bytes:
    """Return a small picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0))
    rows = (b"\0" + bytes((red, 40, 40)) * 40) * 30
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def before(repository: Path) -> None:
    """Commit the files that the session will change."""
    (repository / "src/app").mkdir(parents=True)
    (repository / "src/app/code.py").write_text(CODE)
    (repository / "logo.png").write_bytes(png(200))
    (repository / "old.py").write_text("".join(f"line {i}\n" for i in range(30)))
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "data.bin").write_bytes(bytes(range(256)))
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "what is there")


async def changed(client: Client, repository: Path, name: str = "fix") -> session_pb2.Session:
    """Create a session that has changed all of `before` and whose turn has ended."""
    session = await client.create(repository, 'DO:[{"text": "done"}]', name=name)
    await client.reach(session.id, IDLE)
    session = await client.get(session.id)
    change(Path(session.worktree))
    return session


def change(place: Path) -> None:
    """Change all of `before` in a worktree."""
    (place / "src/app/code.py").write_text(
        CODE.replace("def read(text)", "def parse(text)").replace("n39 = 39", "n39 = 40")
    )
    (place / "logo.png").write_bytes(png(20))
    (place / "old.py").rename(place / "new.py")
    (place / "run.sh").chmod(0o755)
    (place / "data.bin").write_bytes(bytes(range(255, -1, -1)))
    (place / "link").symlink_to("/etc/hostname")
    (place / "dir0/file0.txt").unlink()
    (place / HOSTILE).write_text("x = '<script>alert(1)</script>'\n\x1b[31m\n")
    functions = (f"def function_{i}(argument: int) -> int:\n    return argument + {i}\n\n" for i in range(ROWS))
    (place / "zz_large.py").write_text("".join(functions))
