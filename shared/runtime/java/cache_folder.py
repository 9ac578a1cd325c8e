"""Finds the cache of downloads: jars, for every Hifi on the machine."""

import os
from pathlib import Path


def default_cache() -> Path:
    """$HIFI_CACHE, else hifi under $XDG_CACHE_HOME, else ~/.cache/hifi."""
    if own := os.environ.get("HIFI_CACHE"):
        return Path(own).expanduser().absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG standard says that a relative path there must be ignored.
    if Path(home).is_absolute():
        return Path(home) / "hifi"
    return Path.home() / ".cache" / "hifi"
