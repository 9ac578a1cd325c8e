"""Rates what a Hifi is good for, from outside: the load of an open world, and what came of it."""
