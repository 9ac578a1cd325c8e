"""The machine, or the container, that this process runs on: its size, and its user."""
