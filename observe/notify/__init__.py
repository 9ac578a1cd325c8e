"""Tells people of trouble where they are: what is worth a message, what was told, and sending."""
