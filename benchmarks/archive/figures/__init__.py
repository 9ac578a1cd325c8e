"""One module for each figure; its `measure` gives what it found, by name."""
