"""What a lane of a pipeline has to do with its stream, and with what was kept of it."""
