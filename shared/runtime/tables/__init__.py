"""A machine's copies of tables: one process writes them, and all others read them."""
