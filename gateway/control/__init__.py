"""The control plane: routes for settings, dead letters, replays, receipts and changes."""
