"""Looks up what customers ask about: events, and what became of them."""
