"""Judges documents: every expression twice, on the tree of it and by what is there to be called."""
