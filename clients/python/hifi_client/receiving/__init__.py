"""Receives requests of Hifi, and answers for each event."""
