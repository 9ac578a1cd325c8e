"""Commands that set up, verify, restore and replay archives."""
