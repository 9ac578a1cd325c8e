"""The copies of tables that a machine has: one process writes them, all others read."""
