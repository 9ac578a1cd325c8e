"""Lag and backlog, sampled while events flow."""
