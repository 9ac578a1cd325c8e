"""Samples lag and backlog while events flow."""
