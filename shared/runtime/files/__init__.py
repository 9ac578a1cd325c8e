"""Files of this machine that several processes use."""
