"""Write the contract's Python code beside its .proto files, or with ``--check`` say whether what is
there is stale.

Uses grpc_tools and mypy-protobuf at the versions pinned in pyproject.toml; the output is committed.
"""

import contextlib
import io
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent


def generate(output: Path) -> None:
    """Write all generated files under a directory; exits where protoc does not like a .proto
    file."""
    protos = sorted(str(path.relative_to(HERE)) for path in HERE.glob("ramet/**/*.proto"))
    arguments = ["protoc", f"-I{HERE}", f"-I{files('grpc_tools') / '_proto'}"]
    for plugin in ("python", "mypy", "grpc_python", "mypy_grpc"):
        option = "quiet:" if plugin.startswith("mypy") else ""
        arguments.append(f"--{plugin}_out={option}{output}")
    status = protoc.main([*arguments, *protos])
    if status:
        sys.exit(status)


def stale(fresh: Path) -> list[str]:
    """Generated files that differ from those in ``fresh``, are missing, or belong to no .proto file
    any more."""
    made = {path.relative_to(fresh) for path in fresh.glob("ramet/v1/*_pb2*.py*")}
    here = {path.relative_to(HERE) for path in HERE.glob("ramet/v1/*_pb2*.py*")}
    differing = {name for name in made & here if (fresh / name).read_bytes() != (HERE / name).read_bytes()}
    return sorted(str(name) for name in differing | (made ^ here))


def main() -> int:
    if sys.argv[1:] != ["--check"]:
        generate(HERE)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        with contextlib.redirect_stderr(io.StringIO()):
            generate(Path(scratch))
        old = stale(Path(scratch))
    for name in old:
        print(f"{name} is stale: run `make proto`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
