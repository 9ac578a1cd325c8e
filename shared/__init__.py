"""The core: what an event is and what may happen to it, in pure functions over frozen values."""
