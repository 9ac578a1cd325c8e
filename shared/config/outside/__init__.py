"""What is outside of Hifi, and how it is named: stores for archives."""
