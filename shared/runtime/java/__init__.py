"""Java, and the jars that Kafka and Spark need."""
