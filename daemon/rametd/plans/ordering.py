"""Names for the threads of a plan, and the order in which they land."""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rametd.plans.model import PlanText, Thread, ThreadText


@dataclass(frozen=True, slots=True)
class Known:
    """Name and branch of a thread that was applied before; it keeps them."""

    name: str
    branch: str


def resolve(plan: PlanText, known: Mapping[str, Known], taken: Collection[str]) -> tuple[Thread, ...]:
    """Return the threads in landing order: after the threads in their ``after``, then by ``merge_order``, then as written.

    ``taken``: names of other sessions, which generated names avoid; explicit names stay. Threads of a cycle in ``after`` come
    last, as written: `check` reports the cycle.
    """
    used = {*taken, *(thread.name for thread in plan.threads if thread.name)}
    threads: list[Thread] = []
    for text in plan.threads:
        before = known.get(text.id)
        name = text.name or (before.name if before is not None else _free(_name(text), used))
        used.add(name)
        branch = text.branch or (before.branch if before is not None else "")
        threads.append(Thread(text, name, branch, text.prompt or text.goal, _own_order(text)))
    return tuple(replace(thread, position=place) for place, thread in enumerate(_in_order(threads), 1))


def _name(text: ThreadText) -> str:
    if not text.id.isdecimal():
        return text.id
    return text.branch.rsplit("/", 1)[-1] or f"thread-{text.id}"


def _free(stem: str, used: Collection[str]) -> str:
    name, number = stem, 2
    while name in used:
        name, number = f"{stem}-{number}", number + 1
    return name


def _own_order(text: ThreadText) -> int:
    if text.merge_order is not None:
        return text.merge_order
    return int(text.id) if text.id.isdecimal() and int(text.id) < 1 << 31 else text.index + 1


def _in_order(threads: Sequence[Thread]) -> list[Thread]:
    """Sort for landing. A thread without ``merge_order`` gets at least that of the threads in its ``after``."""
    indices = {thread.id: index for index, thread in enumerate(threads)}
    waits = [{indices[each] for each in thread.text.after if each in indices} for thread in threads]
    followers: list[list[int]] = [[] for _ in threads]
    for index, befores in enumerate(waits):
        for before in befores:
            followers[before].append(index)
    orders = [thread.merge_order for thread in threads]
    ready = [(orders[index], index) for index, befores in enumerate(waits) if not befores]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        _, index = heapq.heappop(ready)
        done.append(index)
        for follower in followers[index]:
            waits[follower].discard(index)
            if threads[follower].text.merge_order is None:
                orders[follower] = max(orders[follower], orders[index])
            if not waits[follower]:
                heapq.heappush(ready, (orders[follower], follower))
    done += sorted(set(range(len(threads))).difference(done))
    return [replace(threads[index], merge_order=orders[index]) for index in done]
