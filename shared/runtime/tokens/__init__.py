"""Reads JSON Web Tokens that others have signed; makes and reads links, signed by keys."""
