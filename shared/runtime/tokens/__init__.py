"""Reads JSON Web Tokens that somebody else has signed."""
