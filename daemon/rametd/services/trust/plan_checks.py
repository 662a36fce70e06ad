"""Trust in checks of plans. A plan file outside of any repository is the person's own; the checks
of any other plan run only once trusted."""

from pathlib import Path

from rametd.domain.errors import RametError, RepoNotFoundError
from rametd.domain.models import Repo
from rametd.domain.plans import Plan, PlanThread
from rametd.services.core import Core
from rametd.store import Reader


async def is_own_plan(core: Core, file: str) -> bool:
    """Whether a plan's file is outside of any repository; "" is standard input, whose source is
    unknown."""
    folder = Path(file).parent
    if not file or not folder.is_dir():
        return False
    try:
        await core.git.discover(folder)
    except RepoNotFoundError:
        return True
    except RametError:
        return False
    return False


def check_item(file: str, thread: str, commands: tuple[str, ...]) -> tuple[str, str]:
    """Key and text of a thread's check, as an item of trust."""
    return f"{Path(file).name or 'plan'}: check of {thread}", "\n".join(commands)


async def plan_items(core: Core, repo: Repo) -> dict[str, str]:
    """Checks of the plans that were applied in a repository and are not the person's own."""
    found = await core.store.read(lambda reader: _checks(reader, repo))
    return dict(
        [check_item(plan.file, row.id, row.check) for plan, row in found if not await is_own_plan(core, plan.file)]
    )


def _checks(reader: Reader, repo: Repo) -> list[tuple[Plan, PlanThread]]:
    return [
        (plan, row)
        for plan in reader.plans.list(repo.id)
        for row in reader.plans.threads(plan.id)
        if row.check and not row.ended and not row.dropped
    ]


async def trusted_check(core: Core, repo: Repo, plan: Plan | None, row: PlanThread | None) -> tuple[str, ...]:
    """The check of a thread; empty if the person has not trusted it."""
    if plan is None or row is None or not row.check or await is_own_plan(core, plan.file):
        return row.check if row is not None else ()
    trusted = await core.store.read(lambda reader: reader.repos.trusted(repo.id))
    return row.check if trusted.covers(*check_item(plan.file, row.id, row.check)) else ()
