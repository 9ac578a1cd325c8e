"""Turns a request's bytes into events packed for Kafka."""
