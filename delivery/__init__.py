"""Kafka in, HTTP out, outcome to Kafka: a lane for each destination, in shared Spark jobs."""
