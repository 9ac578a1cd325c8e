"""Commands that set things: streams, destinations, keys, secrets, dead letters."""
