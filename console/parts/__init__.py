"""The parts that the console's pages share."""
