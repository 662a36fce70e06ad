"""Plans as people write them: `plan.toml` read, checked and put in order. Values in, values out: nothing here looks at the world."""

from rametd.plans.checking import check
from rametd.plans.model import PlanText, Problem, Thread, ThreadText
from rametd.plans.ordering import Known, resolve
from rametd.plans.reading import Reading, read
from rametd.plans.world import World

__all__ = ["Known", "PlanText", "Problem", "Reading", "Thread", "ThreadText", "World", "check", "read", "resolve"]
