"""The pages of single events: search in one stream or in all, newest events, and sent requests."""
