"""Commands about events: send, tail, receipt, replay, verify."""
