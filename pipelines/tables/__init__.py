"""The tables that pipelines write, and look rows up in."""
