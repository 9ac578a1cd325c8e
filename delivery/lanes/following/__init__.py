"""Real time: the messages between a driver and its tasks while the tasks follow their logs."""
