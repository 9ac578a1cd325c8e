"""The list of destinations, the page of one, and the forms that make and change one."""
