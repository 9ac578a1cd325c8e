"""Channels in the console: their list, and the forms that create, change, test and remove them."""
