"""Soaks: hours of traffic with faults on purpose, and a page that says what became of it all."""
