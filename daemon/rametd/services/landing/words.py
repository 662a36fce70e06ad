"""Texts of landing: commit messages, and prompts for agents whose work is returned."""

from collections.abc import Sequence

from rametd.domain.landing import Landing
from rametd.domain.models import Session
from rametd.git import Commit
from rametd.store import Reader

SUBJECT = 72
LISTED = 30


def goal_of(reader: Reader, session: Session) -> str:
    """Goal of a session in one line: its thread's goal, else the first line of its first prompt,
    else ""."""
    thread = reader.plans.thread_of(session.id)
    if thread is not None and thread.goal:
        return one_line(thread.goal)
    prompts = reader.prompts.list(session.id)
    return one_line(next((prompt.text for prompt in prompts if prompt.source != "daemon"), ""))


def one_line(text: str) -> str:
    line = " ".join(next((line for line in text.splitlines() if line.strip()), "").split())
    return line if len(line) <= SUBJECT else line[: SUBJECT - 1].rstrip() + "…"


def merge_message(session: Session, target: str, goal: str) -> str:
    about = f"{session.name}: {goal}" if goal else session.name
    title = f"Merge branch '{session.branch}' into {target}"
    return "\n\n".join(filter(None, [title, about, session.result.strip(), f"Ramet-Session: {session.id}"])) + "\n"


def squash_message(session: Session, goal: str, commits: Sequence[Commit]) -> str:
    """Message of a squash: the subject of the only commit, or the goal and all subjects."""
    subject = commits[0].subject if len(commits) == 1 else goal or session.name
    listed = [f"* {each.subject}" for each in commits[:LISTED]] if len(commits) > 1 else []
    if len(commits) > LISTED:
        listed.append(f"* … {len(commits) - LISTED} more")
    paragraphs = [one_line(subject), session.result.strip(), "\n".join(listed), f"Ramet-Session: {session.id}"]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def conflict_prompt(landing: Landing, paths: Sequence[str]) -> str:
    listed = "\n".join(f"  {path}" for path in paths[:LISTED])
    more = f"\n  … {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return (
        f"Your branch {landing.branch} could not be landed on {landing.target}: these files conflict:\n\n"
        f"{listed}{more}\n\n{_what_to_do(landing)}"
    )


def failure_prompt(landing: Landing, words: str, output: str, *, on_target: bool) -> str:
    """Prompt about a failed check. ``on_target``: it also fails on the target without this work."""
    fence = "`" * 4
    said = f"The end of its output:\n\n{fence}\n{output.rstrip()}\n{fence}\n\n" if output.strip() else ""
    without = f" It fails on {landing.target} without your work too." if on_target else ""
    return (
        f"Your branch {landing.branch} was not landed on {landing.target}: with it, the check fails: {words}.{without}\n\n"
        f"{said}{_what_to_do(landing)}"
    )


def unfinished_prompt(landing: Landing) -> str:
    return (
        f"Your branch {landing.branch} has not landed on {landing.target} yet: it has no new commit.\n\n"
        f"{_what_to_do(landing)}"
    )


def _what_to_do(landing: Landing) -> str:
    bring = (
        f"Rebase your branch onto it (`git rebase {landing.target}`)"
        if landing.method == "rebase"
        else f"Merge it into your branch (`git merge {landing.target}`)"
    )
    checks = "; ".join(f"`{command}`" for command in landing.checks)
    run = f", run the check ({checks}) until it passes" if checks else ""
    return (
        f"{bring}, keep the intent of both sides{run}, and commit everything on {landing.branch}. Change nothing else. When your turn ends, the"
        " branch is queued again; if it cannot be done, say why and commit nothing."
    )
