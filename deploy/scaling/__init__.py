"""Queries by which autoscalers outside AWS count processes."""
