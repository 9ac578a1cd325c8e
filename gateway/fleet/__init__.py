"""The news between gateway processes: Idempotency-Keys, and shares of quotas."""
