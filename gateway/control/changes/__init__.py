"""Changes of the configuration: objects' versions, and records of changes with their authors."""
