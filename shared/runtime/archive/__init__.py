"""Stores of archives, and the code that writes and reads their objects."""
