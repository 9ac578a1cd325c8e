"""Judges documents: every expression twice, by its tree and by the functions that exist."""
