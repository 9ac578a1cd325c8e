"""What runs on each machine beside Hifi: its start, its end, its metrics. The standard library."""
