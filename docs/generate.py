"""Write the reference pages that the code knows, or with ``--check`` say which are stale.

Verbs come from the Click commands, calls from the .proto files, settings from the configuration
model, errors from the error tree. The output is committed, so that it can be read without building
the site.
"""

import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import click
from google.protobuf import descriptor_pb2
from grpc_tools import protoc
from rametctl.cli import VERBS, cli
from rametctl.dashboard import keys
from rametd.agents.presets import Preset
from rametd.agents.registry import described
from rametd.api.contract import SERVICES
from rametd.api.errors import code_of
from rametd.config import SETTINGS, Config
from rametd.config.kinds import toml
from rametd.domain import errors

HERE = Path(__file__).parent
PROTO = HERE.parent / "proto"
OUTPUT = HERE / "reference"
NOTE = "<!-- Written by docs/generate.py. Change the code instead, then run `make docs`. -->\n"


INTRODUCTION = """`proto/ramet/v1/*.proto`, served over a Unix socket together with `grpc.health.v1` and reflection. A call that changes something
takes a `request_id`; the same id again returns the first answer. Lists take page tokens. A cursor is (epoch, sequence number); the epoch names the log.
Send the metadata `ramet-contract: 1` to be refused with a clear error by a daemon that no longer serves this contract.
"""

AGENTS = """The kinds of agents that `--agent` takes. `rametctl agents` shows which are installed here; [how to use them](../how-to/agents.md) has more. "tells": what the
agent says of a turn's cost, and so which budgets can hold. "also": what else it can do with a conversation. "tried": the release that was run
with Ramet, here with a scripted model; of one that was not run, only its documentation says that it speaks the Agent Client Protocol.
"""


def cell(text: str) -> str:
    """Text as a table takes it."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def table(*heads: str, rows: Iterator[tuple[str, ...]]) -> str:
    lines = [" | ".join(heads), " | ".join("---" for _ in heads), *(" | ".join(map(cell, row)) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def paragraphs(help_text: str) -> str:
    """A command's help as Markdown: a block that Click leaves as it is becomes a code block."""
    blocks = []
    for block in inspect.cleandoc(help_text).split("\n\n"):
        lines = block.split("\n")
        if lines[0] != "\b":
            blocks.append(" ".join(lines))
            continue
        head, rest = (lines[1], lines[2:]) if lines[1].endswith(":") else ("", lines[1:])
        code = "\n".join(line.removeprefix("  ") for line in rest)
        blocks.append(f"{head}\n\n```console\n{code}\n```".strip())
    return "\n\n".join(blocks) + "\n"


def options(command: click.Command) -> Iterator[tuple[str, ...]]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden and parameter.name != "help":
            names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
            takes = (
                "" if parameter.is_flag or parameter.count else f" `{parameter.make_metavar(click.Context(command))}`"
            )
            yield f"{names}{takes}", parameter.help or ""


def verb(name: str, command: click.Command, level: int) -> str:
    usage = " ".join(["rametctl", name, *command.collect_usage_pieces(click.Context(command))])
    parts = [f"{'#' * level} {name}\n", f"`{usage}`\n", paragraphs(command.help or "")]
    if rows := list(options(command)):
        parts.append(table("option", "means", rows=iter(rows)))
    if isinstance(command, click.Group):
        parts += [verb(f"{name} {each}", sub, level + 1) for each, sub in sorted(command.commands.items())]
    return "\n".join(parts)


def verbs() -> str:
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in VERBS}
    overview = table(
        "verb",
        "does",
        rows=((f"[`{name}`](#{name})", each.short_help or "") for name, each in commands.items() if each),
    )
    return "\n".join(["# Verbs\n", overview, *(verb(name, each, 2) for name, each in commands.items() if each)])


def settings() -> str:
    rows = (
        (
            f"`{each.key}`",
            each.kind.accepts,
            f"`{toml(each.default)}`",
            "yes" if each.repository else "",
            f"{each.meaning}{f' In {each.kind.unit}.' if each.kind.unit else ''}",
        )
        for each in SETTINGS
    )
    return "\n".join(
        [
            "# Settings\n",
            "`config.toml` in `$XDG_CONFIG_HOME/ramet` may set all of them; `.ramet.toml` at the root of a trusted repository may set those marked.\n",
            table("key", "takes", "default", "repository", "means", rows=rows),
        ]
    )


def agents() -> str:
    def able(preset: Preset, *names: str) -> str:
        return ", ".join(name.replace("_", " ") for name in names if getattr(preset.capabilities, name)) or "neither"

    rows = (
        (
            f"`{each.name}`",
            each.title,
            f"`{' '.join(each.command)}`",
            f"`{each.install}`" if " install " in each.install else each.install,
            f"`{each.login}`",
            "yes" if each.capabilities.ask else "never",
            ", ".join(f"`{mode}`" for mode in each.modes),
            able(each, "cost", "tokens"),
            able(each, "fork", "rewind", "steer", "attach").replace("neither", "-"),
            "yes" if each.capabilities.mcp else "no",
            each.tried or "not run",
        )
        for each in described(Config())
    )
    heads = ("name", "agent", "command", "install", "login", "asks", "modes", "tells", "also", "Ramet's tools", "tried")
    notes = [
        f"- `{each.name}`: {' '.join(each.faults)}{f' Oldest release: {each.minimum_version}.' if each.minimum_version else ''}"
        for each in described(Config())
        if each.faults
    ]
    return "\n".join(["# Agents\n", AGENTS, table(*heads, rows=rows), "What to know of each:\n", *notes, ""])


def reasons() -> str:
    tree = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.RametError)]
    tree.sort(key=lambda each: inspect.getsourcelines(each)[1])
    rows = ((f"`{each.reason}`", code_of(each("")).name, inspect.getdoc(each) or "") for each in tree[1:])
    return "\n".join(
        [
            "# Errors\n",
            "A failed call has a status code and a `google.rpc.ErrorInfo` with domain `ramet`, one of these reasons, and metadata `hint`.\n",
            table("reason", "code", "means", rows=rows),
        ]
    )


def comments() -> Mapping[str, str]:
    """The comment of every call, by its full name."""
    with tempfile.NamedTemporaryFile() as made:
        protos = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("ramet/**/*.proto"))
        wanted = ["--include_source_info", f"--descriptor_set_out={made.name}"]
        if status := protoc.main(["protoc", f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}", *wanted, *protos]):
            sys.exit(status)
        found = descriptor_pb2.FileDescriptorSet.FromString(Path(made.name).read_bytes())
    said = {}
    for file in found.file:
        places = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
        for number, service in enumerate(file.service):
            for place, method in enumerate(service.method):
                # 6: FileDescriptorProto.service; 2: ServiceDescriptorProto.method
                said[f"{file.package}.{service.name}.{method.name}"] = places[6, number, 2, place]
    return said


def contract() -> str:
    said = comments()
    rows = (
        (f"`{service.name}`", f"`{each.name}`", said[each.full_name])
        for service in SERVICES
        for each in service.methods
    )
    return "\n".join(
        [
            "# The contract\n",
            INTRODUCTION,
            table("service", "call", "does", rows=rows),
        ]
    )


def dashboard() -> str:
    return f"# Keys of the dashboard\n\nThe same list is on the screen: press `?`.\n\n{keys.markdown()}"


PAGES: Mapping[str, Callable[[], str]] = {
    "verbs.md": verbs,
    "settings.md": settings,
    "contract.md": contract,
    "agents.md": agents,
    "errors.md": reasons,
    "keys.md": dashboard,
}


def main() -> int:
    pages = {OUTPUT / name: NOTE + "\n" + make() for name, make in PAGES.items()}
    if sys.argv[1:] == ["--check"]:
        stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
        for path in stale:
            print(f"{path.relative_to(HERE.parent)} is stale: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    OUTPUT.mkdir(exist_ok=True)
    for path, text in pages.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
