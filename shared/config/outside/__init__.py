"""Things outside of Hifi, and how they are named: stores, databases, functions, channels."""
