"""Keeps what gateways share: the configuration, receipts, replays; and sends dead letters again."""
