"""Sends messages to people by webhook, in Slack and by mail: notices of observe, and trials."""
