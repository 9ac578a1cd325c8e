"""Settings of things outside Hifi: stores, databases, functions, channels."""
