"""State that gateways share through Kafka: Idempotency-Keys, quotas, keys' uses, trials."""
