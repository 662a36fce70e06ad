"""Write the contract's Python code beside its .proto files: `python proto/generate.py [OUTPUT_DIRECTORY]`.

Uses grpc_tools and mypy-protobuf at the versions pinned in pyproject.toml; the output is committed.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).parent


def main() -> int:
    """Return protoc's exit status."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    output.mkdir(parents=True, exist_ok=True)
    protos = sorted(str(path.relative_to(HERE)) for path in HERE.glob("ramet/**/*.proto"))
    return int(
        protoc.main(
            [
                "protoc",
                f"-I{HERE}",
                f"-I{files('grpc_tools') / '_proto'}",
                f"--python_out={output}",
                f"--mypy_out={output}",
                f"--grpc_python_out={output}",
                f"--mypy_grpc_out={output}",
                *protos,
            ]
        )
    )


if __name__ == "__main__":
    sys.exit(main())
