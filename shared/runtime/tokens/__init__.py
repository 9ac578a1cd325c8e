"""Reads JSON Web Tokens from issuers; makes and reads links, which keys sign."""
