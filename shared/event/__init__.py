"""Events, the facts about them, and their places in Kafka."""
