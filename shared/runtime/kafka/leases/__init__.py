"""Shares a service's work out among its processes, and fences who has lost his part."""
