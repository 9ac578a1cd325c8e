"""Replays as gateways keep them: the orders, and the events that each would send."""
