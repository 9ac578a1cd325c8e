"""What customers set: streams, destinations, keys, and the checks on them."""
