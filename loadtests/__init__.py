"""Measures the capacity of a Hifi from outside: offers open-loop load, and judges the results."""
