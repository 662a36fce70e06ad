"""An item that gc judges."""

from dataclasses import dataclass

KEPT = "kept"
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Garbage:
    """As in the contract. The verdict "kept" means that it stays."""

    kind: str
    name: str
    session_id: str
    repo: str
    verdict: str
    reason: str
    bytes: int = 0
    removed: bool = False
    commit: str = ""  # of a branch or ref, as it was judged
    warnings: tuple[str, ...] = ()

    @property
    def goes(self) -> bool:
        return self.verdict != KEPT
