"""Commands that say what a Hifi is good for."""
