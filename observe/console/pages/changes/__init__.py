"""What somebody who may makes, changes and removes by forms: the parts of all of them, and more."""
