"""Ways of notification that fail."""

from collections import Counter
from collections.abc import AsyncIterator

from rametd.services.core import Core
from rametd.services.notifications.ways import enabled
from rametd.services.upkeep.finding import Finding


async def notifications(core: Core, checked: Counter[str]) -> AsyncIterator[Finding]:
    ways = enabled(core.config.notify)
    checked["ways of notification"] = len(ways)
    troubles = await core.store.read(lambda reader: reader.notifications.troubles())
    for way, trouble in troubles.items():
        if way in ways:
            advice = "correct its settings (`rametctl config show`), then: rametctl notify test"
            yield Finding("warning", "notification-failing", way, "", trouble.error, advice)
