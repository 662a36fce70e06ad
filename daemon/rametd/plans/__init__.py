"""Plans: read, check and order a `plan.toml`. Values in, values out: no function reads disk or
store."""

from rametd.plans.checking import Known, check, resolve
from rametd.plans.model import PlanText, Problem, Thread, ThreadText, World
from rametd.plans.reading import Reading, read

__all__ = ["Known", "PlanText", "Problem", "Reading", "Thread", "ThreadText", "World", "check", "read", "resolve"]
