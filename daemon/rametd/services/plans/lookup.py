"""Finding the plan that a person names."""

from collections.abc import Sequence

from rametd.domain.errors import AmbiguousError, PlanNotFoundError
from rametd.domain.models import Repo
from rametd.domain.plans import Plan
from rametd.store import Reader


def find_plan(reader: Reader, name: str, repo: Repo | None) -> Plan:
    """By id, file, or name; "" is the only one of the repository. Raises `PlanNotFoundError`, `AmbiguousError`."""
    plans = reader.plans.list()
    here = [plan for plan in plans if repo is not None and plan.repo_id == repo.id]
    if name:
        for found in (
            [plan for plan in plans if plan.id == name],
            [plan for plan in here if plan.file == name] or [plan for plan in plans if plan.file == name],
            [plan for plan in here if plan.name == name] or [plan for plan in plans if plan.name == name],
        ):
            if len(found) == 1:
                return found[0]
            if found:
                raise _ambiguous(f"{name!r} fits several plans", found)
        raise PlanNotFoundError(f"no plan {name!r} is applied", hint="`rametctl plan apply` applies one")
    if len(here) == 1:
        return here[0]
    if not here:
        raise PlanNotFoundError("no plan is applied in this repository", hint="`rametctl plan apply` applies one")
    raise _ambiguous("several plans are applied here", here)


def _ambiguous(words: str, plans: Sequence[Plan]) -> AmbiguousError:
    matches = ", ".join(f"{plan.name} ({plan.file or plan.id})" for plan in plans)
    return AmbiguousError(f"{words}: {matches}", hint="name one of them", matches=matches)
