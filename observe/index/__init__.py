"""Keeps the place of each event, by its id and its ordering key, beside the observing process."""
