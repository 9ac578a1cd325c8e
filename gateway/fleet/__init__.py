"""What gateway processes tell each other: Idempotency-Keys, and shares of quotas."""
