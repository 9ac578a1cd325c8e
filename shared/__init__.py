"""The code that all services share: a pure core, and `runtime`, which touches the world."""
