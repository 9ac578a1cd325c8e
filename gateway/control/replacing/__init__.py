"""Builds a pipeline's next version beside it, and swaps them once the new one has caught up."""
