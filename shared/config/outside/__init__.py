"""What is outside of Hifi, and how it is named: stores, databases, functions, channels."""
