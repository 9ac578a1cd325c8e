"""HTTP in, Kafka out: a success means that Kafka has reported each event stored."""
