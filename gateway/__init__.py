"""HTTP in, Kafka out: a success is answered only after Kafka has reported each event stored."""
