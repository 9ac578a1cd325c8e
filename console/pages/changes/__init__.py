"""The forms by which admins make, change and remove things: their shared parts, and some forms."""
