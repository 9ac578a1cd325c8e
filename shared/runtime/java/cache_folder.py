"""Finds the cache of downloaded jars, which every Hifi on the machine shares."""

import os
from pathlib import Path


def default_cache() -> Path:
    """Return $HIFI_CACHE, else hifi below $XDG_CACHE_HOME, else ~/.cache/hifi."""
    if own := os.environ.get("HIFI_CACHE"):
        return Path(own).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG standard says that a relative path there must be ignored.
    if Path(home).is_absolute():
        return Path(home) / "hifi"
    return Path.home() / ".cache" / "hifi"
