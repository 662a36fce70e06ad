"""What waits for the person, in all repositories: what holds up work first, the oldest at the top."""

from collections.abc import Mapping
from typing import ClassVar

from markupsafe import escape

from rametctl.requests import by_urgency
from rametctl.web import requests
from rametctl.web.site import Action, Fragments, Page, Site, Visit


class Inbox(Page):
    path: ClassVar[str] = "/inbox"
    template: ClassVar[str] = "inbox.html"
    nav: ClassVar[str] = "Inbox"
    key: ClassVar[str] = "N"

    def fragments(self, site: Site, visit: Visit) -> Fragments:
        blocking, reviews = by_urgency(site.requests)
        return {
            "blocking": requests.cards(site, blocking, visit, named=True),
            "reviews": requests.cards(site, reviews, visit, named=True),
            "empty": escape("" if blocking or reviews else "Nothing waits for you."),
        }


PAGES: tuple[type[Page], ...] = (Inbox,)
ACTIONS: Mapping[str, Action] = requests.ACTIONS
