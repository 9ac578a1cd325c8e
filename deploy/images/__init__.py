"""Container images: how they are built, and what their builds run."""
