"""Sends events again: dead letters, one event, or a span of a stream."""
