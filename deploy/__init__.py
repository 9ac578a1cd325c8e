"""How Hifi is run: the embedded stack on one machine, and the command people type."""
