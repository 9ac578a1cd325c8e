"""Sends spans of requests and attempts to an OpenTelemetry collector if one is set (ADR 0103)."""
