"""TOML of any author: each text that is refused, for whatever reason, raises one error, soon."""

import re
import tomllib
from typing import Any

_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){65}""")
"""tomllib reads the parts of a key in quadratic time."""


def loads(text: str) -> dict[str, Any]:
    """Return the document. Raise `tomllib.TOMLDecodeError`."""
    if found := _LONG_KEY.search(text):
        raise tomllib.TOMLDecodeError(f"A key has too many parts (at line {text.count(chr(10), 0, found.start()) + 1})")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("lists or tables are nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # a number with too many digits
        raise tomllib.TOMLDecodeError(str(error)) from None
