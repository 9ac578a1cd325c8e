"""Sends people messages about trouble: finds notices, remembers sent ones, and sends due ones."""
