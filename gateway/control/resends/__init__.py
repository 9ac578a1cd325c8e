"""Resends: of one event, of dead letters (redrives), and of a part of a stream (replays)."""
