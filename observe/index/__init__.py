"""Keeps where each event lies, by its id and its ordering key, beside the process that observes."""
