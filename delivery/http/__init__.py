"""One HTTP attempt: the allowed addresses, the request, and the reply."""
