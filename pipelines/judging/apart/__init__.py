"""Judging and trying apart from all else: the process, those who ask it, and what it answers."""
