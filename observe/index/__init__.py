"""The index of events: each one's place in the log, by its id and its ordering key."""
