"""Spans of requests and attempts, sent to an OpenTelemetry collector if one is set (ADR 0103)."""
