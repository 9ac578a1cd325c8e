"""What gateway processes tell each other: Idempotency-Keys."""
