"""Events on this machine's disk until the gateway has them."""
