"""What `hifi replay` was asked to send again, and how."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOrder:
    """What is to be sent again, and how."""

    kafka: str
    data: Path
    replay_id: str
    stream: str
    destination: str
    from_ms: int | None
    to_ms: int | None
    # Only events with this ordering key.
    key: str | None
    rate_per_s: float | None
    # Say how many there are, and send none.
    is_dry: bool
    # Those that open the destinations' secrets; None: those of the data folder.
    keys: str | None
    allow_private: bool
