"""Directories that git may not read, even if the tests run as root, for whom modes do not count."""

import os
import shutil
from pathlib import Path

WRAPPER = """#!/bin/sh
exec setpriv --bounding-set -dac_override,-dac_read_search --inh-caps -dac_override,-dac_read_search {git} "$@"
"""


def unprivileged_git(folder: Path) -> None:
    """Put a `git` into ``folder`` for which modes count, as for a person's."""
    git = shutil.which("git")
    assert git is not None
    if os.geteuid() == 0:
        program = folder / "git"
        program.write_text(WRAPPER.format(git=git))
        program.chmod(0o755)


def closed_directory(tree: Path, name: str = "closed") -> Path:
    """A directory of mode 000 with a file ``secret`` in it."""
    made = tree / name
    made.mkdir()
    (made / "secret").write_text("only here\n")
    made.chmod(0)
    return made
