"""One module for each measurement; its `measure` returns figures by name."""
