"""How Hifi is run: on one machine or on AWS, by the command that people type, with alerts."""
