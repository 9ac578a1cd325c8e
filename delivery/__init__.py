"""Kafka in, HTTP out, outcome to Kafka: one Spark query (lane) per destination."""
