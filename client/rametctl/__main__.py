"""The entry point: run a verb, and turn every error into one line on standard error and an exit
code.

The module itself imports only what Python has loaded already, since Ctrl-C prints a traceback until
``main`` runs.
"""

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from rametctl.app import App
    from rametctl.errors import ClientError

INTERRUPTED = 130


def main(args: "Sequence[str] | None" = None) -> None:
    """Run ``rametctl ARGS`` and exit."""
    # A command ends before cyclic garbage matters; a watch still collects it, less often.
    gc.set_threshold(50_000)
    words = list(sys.argv[1:] if args is None else args)
    sys.unraisablehook = press_again
    try:
        # Referenced until the end, with its channels: gRPC closes an unreferenced one, and that may
        # hang forever after a call that Ctrl-C interrupted.
        app = application(words)
        status = run(app, words)
    except KeyboardInterrupt:
        status = INTERRUPTED
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        _discard_output()
    # The work is done, and gRPC's threads and module teardown would take longer than the verb did.
    os._exit(status)


def press_again(lost: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that Python drops because it arrived in a finalizer, such as of a gRPC call;
    the moment lets the finalizer return. A hook of `sys`, which prints all else as usual."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    import threading
    from _thread import interrupt_main

    again = threading.Timer(0.02, interrupt_main)
    again.daemon = True
    again.start()


def application(args: list[str]) -> "App":
    """Return the `App` for the process's streams and environment."""
    import_later("google.protobuf.internal.python_message")
    from rametctl.app import App
    from rametctl.console import output

    json = "--json" in (args[: args.index("--")] if "--" in args else args)
    return App(output.standard(os.environ, json=json))


def import_later(name: str) -> None:
    """Import a module at the first use of something in it, although other modules import it.

    protobuf imports its implementation in Python, and with it text formats and more, also where it
    uses the one in C: that would take as long as all of a list.
    """
    from importlib import import_module
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    def find(attribute: str) -> object:
        if sys.modules.get(name) is stub:
            del sys.modules[name]
            vars(stub).update(vars(import_module(name)))
        return getattr(import_module(name), attribute)

    if name not in sys.modules:
        stub = sys.modules[name] = ModuleType(name)
        stub.__spec__ = ModuleSpec(name, None)
        vars(stub)["__getattr__"] = find


def run(app: "App", args: list[str]) -> int:
    """Run ``rametctl ARGS``; return its exit code."""
    from rametctl.errors import ClientError

    try:
        return _run(app, args)
    except ClientError as error:
        return _fail(app, error)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(app: "App", args: list[str]) -> int:
    import click

    from rametctl.cli import Interrupted, ReaderGone, cli
    from rametctl.errors import ClientError, UsageError

    for number, arg in enumerate(args, 1):
        try:
            arg.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"argument {number} is not UTF-8 text", hint="pass it in a file: -f FILE") from error
    try:
        result = cli.main(args, prog_name="rametctl", standalone_mode=False, obj=app)
    except click.exceptions.NoArgsIsHelpError as error:
        app.output.note(error.format_message())
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "rametctl"
        message = error.format_message().rstrip(".")
        raise UsageError(message[:1].lower() + message[1:], hint=f"see: {path} --help") from error
    except click.ClickException as error:
        raise ClientError(error.format_message()) from error
    except click.exceptions.Exit as error:
        return error.exit_code
    except Interrupted:
        app.output.erase_echo()
        return INTERRUPTED
    except click.Abort:
        return INTERRUPTED
    except ReaderGone:
        _discard_output()
        return 0
    except SystemExit as error:
        # Click's completion exits in this way.
        return error.code if isinstance(error.code, int) else 0
    return result if isinstance(result, int) else 0


def _fail(app: "App", error: "ClientError") -> int:
    from ramet.visible import visible

    # Escape first, as `split` takes some invisible characters for blanks.
    message, hint = (" ".join(visible(text).split()) for text in (error.message, error.hint))
    joint = " " if message.endswith(("?", "?)")) else "; "
    app.output.note(f"rametctl: {message}" + (joint + hint if hint else ""))
    if app.output.json_mode and not app.output.answered:
        answer = {"reason": error.reason, "message": " ".join(error.message.split()), "hint": error.hint}
        app.output.json({"error": answer})
    return error.exit_code


def _discard_output() -> None:
    """Discard buffered output, so that the interpreter's last flush does not fail."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.close(sink)


if __name__ == "__main__":
    main()
