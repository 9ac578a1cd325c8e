"""Real time: what a driver and its tasks say to each other while those follow their logs."""
