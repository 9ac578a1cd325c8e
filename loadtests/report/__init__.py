"""Draws a rating as one page that needs nothing else: words, tables, and plots as inline SVG."""
