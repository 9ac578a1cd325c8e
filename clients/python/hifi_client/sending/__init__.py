"""From an event to the fate that the gateway gave it."""
