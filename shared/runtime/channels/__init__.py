"""Tells people by webhook, in Slack and by mail: what observe has to say, and what tries it."""
