"""Forms with which admins create, change and remove things, and the parts that they share."""
