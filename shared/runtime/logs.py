"""Sets up a process's log: one line for each log event, as text on a terminal, else as JSON."""

import logging
import sys

import structlog


def configure_logs(*, service: str, level: str = "info") -> None:
    """Set up structlog and the standard library's logging; call it once, in __main__."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr)
    renderers: list[structlog.typing.Processor] = (
        # The console renderer formats exceptions itself, and warns if they are already formatted.
        [structlog.dev.ConsoleRenderer()]
        if sys.stderr.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
