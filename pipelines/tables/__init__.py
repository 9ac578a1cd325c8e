"""The tables that pipelines write, and in which they look up rows."""
