"""What plans are checked against."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rametd.domain.errors import RametError
from rametd.git.tree import Tree


@dataclass(frozen=True, slots=True)
class World:
    """What a plan is checked against, without what the plan itself has made there."""

    branches: Mapping[str, str] = field(default_factory=dict)  # those that are taken, each with who has it, in words
    names: Mapping[str, str] = field(default_factory=dict)  # of sessions, each with its id
    bases: Mapping[str, Tree | RametError] = field(default_factory=dict)  # by what is asked for; "" for none
    agreed: Collection[str] = ()  # ids of threads that own what they were applied with: nobody is asked again
    target: RametError | None = None  # why there is no such branch
    prompt_files: Mapping[str, RametError | None] = field(default_factory=dict)  # why each cannot be read
    agents: Sequence[str] = ("claude",)
    bypass: bool = False
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what other sessions own, by name
    sessions: Mapping[str, str] = field(
        default_factory=dict
    )  # ids by thread, of those that are there: branch and base are no question
