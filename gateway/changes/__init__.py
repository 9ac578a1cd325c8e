"""Changes of the configuration: which version they are of, and the trail of who has made them."""
