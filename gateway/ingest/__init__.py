"""Takes events in: reads and judges them, stores them in Kafka, and answers."""
