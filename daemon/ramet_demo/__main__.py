"""``python -m ramet_demo``: show several agents at work, without an account. Exits with 0 if every
claim held."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from rich.console import Console

from ramet_demo.picture import COLUMNS, draw
from ramet_demo.stage import BrokenPromiseError, stage
from ramet_demo.story import CONCLUSION, perform
from ramet_demo.teller import Teller

WIDTH = 80
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def leave(number: int, _frame: FrameType | None) -> None:
    """Turn a signal into an exception, so that the teardown runs in order."""
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="rametctl demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    parser.add_argument(
        "--svg",
        type=Path,
        metavar="DIRECTORY",
        help="draw the key screens of this run into it (web pages need Playwright and Chromium)",
    )
    arguments = parser.parse_args()
    for number in SIGNALS:
        signal.signal(number, leave)
    # In the background of a script it inherits an ignored SIGINT, and so would the commands that it
    # ends with one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal or console.width > WIDTH:
        console.width = WIDTH
    teller = Teller(console, COLUMNS if arguments.svg else None)
    try:
        with stage(os.environ, keep=arguments.keep) as place:
            screens = perform(place, teller)
            if arguments.svg:
                for picture in (place.root / "dashboard.svg", *place.root.glob("web-*.png")):
                    shutil.copy(picture, arguments.svg)
            environment = place.save_environment() if arguments.keep else None
    except (BrokenPromiseError, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"rametctl demo: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nrametctl demo: interrupted; everything was removed\n")
        return 130
    if environment is not None:
        teller.add(f"All processes have ended. To look around: . {environment} && cd {place.repository} && rametctl ls")
    elif place.root.exists():
        sys.stderr.write(f"rametctl demo: {place.root} could not be removed\n")
        return 1
    else:
        teller.add(f"All processes have ended, and {place.root} is removed.")
    if arguments.svg:
        for name, shown in screens.items():
            draw(shown, arguments.svg / f"{name}.svg")
    teller.say("What you saw")
    teller.add(CONCLUSION)
    return 0


if __name__ == "__main__":
    sys.exit(main())
