"""Keeps streams in stores: objects of a range of offsets each, written whole and once."""
