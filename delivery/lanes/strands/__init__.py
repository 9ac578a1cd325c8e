"""The state of single strands: how far each is, and the event that it may wait for."""
