"""The OpenAPI description of the gateway."""
