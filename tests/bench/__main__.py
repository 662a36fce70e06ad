"""``python -m tests.bench [GROUP...] [--quick]``: measure the figures of the design and print one
JSON object; progress is on standard error."""

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence

from tests.bench import agents, creation, history, quiet, radar, review, stream, trees
from tests.bench.figures import FULL, QUICK, Figure, Scale, machine, progress

GROUPS: dict[str, Callable[[Scale], AsyncIterator[Figure]]] = {
    "quiet": quiet.rows,
    "stream": stream.rows,
    "history": history.rows,
    "creation": creation.rows,
    "trees": trees.rows,
    "radar": radar.rows,
    "review": review.rows,
    "agents": agents.rows,
}


async def measure(groups: Sequence[str], scale: Scale) -> dict[str, object]:
    """Run groups one after the other; record the machine's load before and after, as it may be
    busy."""
    began, load = time.monotonic(), os.getloadavg()[0]
    figures = []
    for group in groups:
        progress(f"{group}, load {os.getloadavg()[0]:.1f}")
        async for figure in GROUPS[group](scale):
            row = figure.row()
            figures.append({"group": group, **row})
            progress(
                f"  {figure.name}: {row['value']} {figure.unit}" + {True: "", False: "  MISSED", None: ""}[figure.met]
            )
    return {
        "machine": machine(),
        "load": {"before": round(load, 2), "after": round(os.getloadavg()[0], 2)},
        "scale": scale.name,
        "seconds": round(time.monotonic() - began, 1),
        "missed": [row["name"] for row in figures if row["met"] is False],
        "figures": figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure; figures as JSON.")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; all unless given")
    parser.add_argument("--quick", action="store_true", help="a small scale: shows that all works, not how fast")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}: there are {', '.join(GROUPS)}")
    report = asyncio.run(measure(arguments.groups or list(GROUPS), QUICK if arguments.quick else FULL))
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
