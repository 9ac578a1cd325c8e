"""One HTTP attempt: where it may go, what it looks like, what came back."""
