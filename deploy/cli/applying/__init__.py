"""Sets up what files say, and writes such files: `hifi apply`, `hifi delete`, `hifi export`."""
