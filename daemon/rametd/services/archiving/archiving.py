"""The services that archive, remove and restore, as one value for the API and recovery."""

from dataclasses import dataclass

from rametd.services.archiving.archive import Archiver
from rametd.services.archiving.remove import Remover
from rametd.services.archiving.restore import Restorer
from rametd.services.archiving.trash import Trash
from rametd.services.landing.landed import LandedTracker


@dataclass(frozen=True, slots=True)
class Archiving:
    remover: Remover
    archiver: Archiver
    restorer: Restorer
    trash: Trash
    landed: LandedTracker
