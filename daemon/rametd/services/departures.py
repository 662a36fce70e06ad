"""The end of a session's life, and the ways back: what the calls about it and recovery need."""

from dataclasses import dataclass

from rametd.services.archive import Archiver
from rametd.services.landed import LandedTracker
from rametd.services.removal import Remover
from rametd.services.restoring import Restorer


@dataclass(frozen=True, slots=True)
class Departures:
    remover: Remover
    archiver: Archiver
    restorer: Restorer
    landed: LandedTracker
