"""The control plane: streams, destinations, keys, tenants, dead letters, receipts."""
