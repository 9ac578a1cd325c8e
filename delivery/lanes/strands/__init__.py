"""The state of single strands: their positions, and the events that they may wait for."""
