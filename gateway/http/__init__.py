"""HTTP serving: the door for whole requests, access logs, probes, the API's document."""
