"""Channels in the console: the list of them, and the forms that make, change, test and remove."""
