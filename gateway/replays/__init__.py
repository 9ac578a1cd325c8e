"""Replays as gateways keep them: what was ordered, and what each would send."""
