"""Speed and memory, measured as ratios to a limit in the same run; never part of the tests."""
