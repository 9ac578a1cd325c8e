"""From packed events to Kafka, and what was acknowledged of them."""
