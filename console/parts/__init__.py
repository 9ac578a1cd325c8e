"""What the console's pages are made of."""
