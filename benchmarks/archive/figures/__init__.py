"""One module for each figure; its `measure` returns its figures, by name."""
