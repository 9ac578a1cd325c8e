"""The pages of single events: found in one stream or in all, the newest, and sent requests."""
