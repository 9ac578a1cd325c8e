"""Commands about events: send, events, listen, receipt, verify, reconcile."""
