"""Delivery's Spark queries: a lane for each destination, and replay."""
