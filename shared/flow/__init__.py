"""How much may go to a destination at once, and when."""
