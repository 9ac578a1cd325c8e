"""Parts of a plan."""
