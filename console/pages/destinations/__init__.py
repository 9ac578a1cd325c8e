"""The list of destinations, a destination's page, and the forms that create and change one."""
