"""Serves requests with events: reads and checks the events, stores them in Kafka, and answers."""
