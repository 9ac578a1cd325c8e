"""The HTTP server: protocol, process set-up, probes."""
