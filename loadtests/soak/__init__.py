"""Soaks: hours of traffic with deliberate faults, and a page with the results."""
