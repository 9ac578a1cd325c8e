"""Where archives are kept, and how their objects are written and read."""
