"""Judges documents: checks every expression's tree, and lets only allowed functions exist."""
