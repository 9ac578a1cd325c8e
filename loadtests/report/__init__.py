"""Draws a rating as one self-contained page: text, tables, and plots as inline SVG."""
