"""What is kept of each stream and destination over time, for the pictures of the console."""
