"""The daemon's log: JSON lines in the state directory, readable lines on a terminal; no prompts,
tool inputs or secrets."""

import logging
import logging.handlers
import os
import queue
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import date
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

import structlog
from ramet.visible import visible
from structlog.typing import EventDict, Processor, WrappedLogger

FILE = "rametd.log"
MASK = "[masked]"

# Words in keys whose values are masked at any depth: texts of people and agents, and credentials.
# Numbers are not masked.
_PRIVATE = re.compile(
    r"(?:^|_)(?:prompts?|inputs?|answers?|contents?|texts?|body|frames?|stdin|argv"
    r"|tokens?|secrets?|passwords?|credentials?|authorization|cookies?|(?:api|private|access)_?keys?"
    r"|env|environ|environments?)(?:_|$)"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def bound(*, session: str = "", request: str = "", principal: str = "") -> AbstractContextManager[object]:
    """Add session, request and principal to each log line of this task, and of tasks that it
    starts, within the block."""
    names = {"session": session, "request": request, "principal": principal}
    return structlog.contextvars.bound_contextvars(**{name: value for name, value in names.items() if value})


class Logging:
    """The configured logging of the process. Closing it flushes the queues and restores the
    previous configuration."""

    def __init__(self, level: str, targets: Iterable[tuple[logging.Handler, Processor]]) -> None:
        root, ours = logging.getLogger(), logging.getLogger("rametd")
        self._levels = {root: root.level, ours: ours.level}
        self._entries: list[logging.Handler] = []
        self._listeners: list[logging.handlers.QueueListener] = []
        for target, renderer in targets:
            # The caller renders the line, with its context. A thread writes it, so that a slow disk
            # never blocks the loop.
            lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
            entry = logging.handlers.QueueHandler(lines)
            entry.setFormatter(_formatter(renderer))
            listener = logging.handlers.QueueListener(lines, target)
            listener.start()
            root.addHandler(entry)
            self._entries.append(entry)
            self._listeners.append(listener)
        ours.setLevel(level.upper())
        # Detailed messages of libraries may contain prompts.
        root.setLevel(logging.WARNING)

    def close(self) -> None:
        root = logging.getLogger()
        for entry, listener in zip(self._entries, self._listeners, strict=True):
            root.removeHandler(entry)
            entry.close()
            listener.stop()
            for target in listener.handlers:
                target.close()
        self._entries.clear()
        self._listeners.clear()
        for logger, level in self._levels.items():
            logger.setLevel(level)
        structlog.reset_defaults()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def set_up(
    directory: Path, *, level: str = "info", console: TextIO | None = None, rotate_at: int = 10 << 20, keep: int = 5
) -> Logging:
    """Send structlog and standard logging to ``directory/rametd.log`` (0600, ``keep`` older files
    of ``rotate_at`` bytes).

    ``console`` gets readable lines, in colour on a terminal. ``level``: debug, info, warning or
    error. Raises OSError if the file cannot be opened.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = _PrivateFile(
        directory / FILE, maxBytes=rotate_at, backupCount=keep, encoding="utf-8", errors="backslashreplace"
    )
    targets: list[tuple[logging.Handler, Processor]] = [(file, structlog.processors.JSONRenderer(ensure_ascii=False))]
    if console is not None:
        renderer = structlog.dev.ConsoleRenderer(
            colors=console.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
        targets.append((logging.StreamHandler(console), _for_people(renderer)))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return Logging(level, targets)


def mask(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A structlog processor that replaces values of private keys, at any depth, by "[masked]"."""
    return {key: _safe(key, value) for key, value in event.items()}


def _safe(key: str, value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if _PRIVATE.search(_HUMP.sub("_", key).lower().replace("-", "_")):
        return MASK
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Path | date):
        return str(value)
    if isinstance(value, Mapping):
        return {str(inner): _safe(str(inner), item) for inner, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe("", item) for item in value]
    return f"<{type(value).__name__}>"  # its repr may contain private values


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,  # plain tracebacks: never the values of local variables
        mask,
    ]


def _for_people(renderer: Processor) -> Processor:
    """Wrap ``renderer``: control characters in texts become visible."""

    def render(logger: WrappedLogger, method: str, event: EventDict) -> Any:
        shown = {key: visible(value) if isinstance(value, str) else value for key, value in event.items()}
        return renderer(logger, method, shown)

    return render


def _formatter(renderer: Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer], foreign_pre_chain=_shared()
    )


class _PrivateFile(logging.handlers.RotatingFileHandler):
    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), encoding=self.encoding, errors=self.errors)
