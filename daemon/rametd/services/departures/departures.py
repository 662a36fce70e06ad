"""The services that archive, remove and restore, as one value for the API and recovery."""

from dataclasses import dataclass

from rametd.services.departures.archive import Archiver
from rametd.services.departures.removal import Remover
from rametd.services.departures.restoring import Restorer
from rametd.services.departures.trash import Trash
from rametd.services.landing.landed import LandedTracker


@dataclass(frozen=True, slots=True)
class Departures:
    remover: Remover
    archiver: Archiver
    restorer: Restorer
    trash: Trash
    landed: LandedTracker
