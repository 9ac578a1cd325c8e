"""What an event is, what is known of it, and where it lies in Kafka."""
