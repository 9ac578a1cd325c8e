"""The due gate over the retry tiers: waiting events go out again when they are due, never early."""
