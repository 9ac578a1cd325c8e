"""Builds the next version of a pipeline beside it, and swaps them once it has caught up."""
