"""The sample repository: a small command line program with a bug, which `python -m greet Ada Alan`
shows."""

import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path

FILES = {
    ".gitignore": "__pycache__/\n",
    "README.md": """\
        # greet

        Greets people on the command line.

            python -m greet Ada Alan Grace
        """,
    "greet/__init__.py": '''\
        """Greetings."""


        def greeting(names: list[str]) -> str:
            """Greet everybody in one line: "Hello, Ada, Alan and Grace!"."""
            if not names:
                return "Hello, world!"
            *others, last = names
            if len(others) > 1:
                return f"Hello, {', '.join(others)} and {last}!"
            return f"Hello, {last}!"
        ''',
    "greet/__main__.py": '''\
        """The command line: python -m greet [NAME]..."""

        import argparse

        from greet import greeting

        parser = argparse.ArgumentParser(prog="greet")
        parser.add_argument("names", nargs="*", metavar="NAME")
        arguments = parser.parse_args()
        print(greeting(arguments.names))
        ''',
    "tests/__init__.py": "",
    "tests/test_greet.py": """\
        import unittest

        from greet import greeting


        class GreetingTest(unittest.TestCase):
            def test_one_name(self) -> None:
                self.assertEqual(greeting(["Ada"]), "Hello, Ada!")
        """,
}


def make(path: Path, environ: Mapping[str, str]) -> None:
    """Create the repository at ``path`` with one commit on ``main``. Raises
    `subprocess.CalledProcessError`."""
    for name, text in FILES.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    for arguments in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "greet: greet people"]):
        subprocess.run(["git", *arguments], cwd=path, env=dict(environ), check=True)
