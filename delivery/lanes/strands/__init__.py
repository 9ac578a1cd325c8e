"""What is known of single strands: how far each is, and what one may wait for."""
