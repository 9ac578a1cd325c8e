"""The tables that pipelines write, and look up in."""
