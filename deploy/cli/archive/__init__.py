"""Archives by hand: set up, verified, restored, replayed."""
