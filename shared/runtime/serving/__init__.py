"""The HTTP server of all our processes: deadlines, limits, and an orderly end."""
