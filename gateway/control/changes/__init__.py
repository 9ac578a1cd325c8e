"""Changes of the configuration: their versions, and the trail of their authors."""
