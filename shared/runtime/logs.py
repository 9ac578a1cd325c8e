"""Decides how a process speaks: a line per happening, for people on a terminal, else JSON."""

import logging
import sys

import structlog

from shared.runtime.setup_error import SetupError


def configure_logs(*, service: str, level: str = "info") -> None:
    """Set up structlog and the standard library's logging alike; called once, in __main__."""
    levels = logging.getLevelNamesMapping()
    if level.upper() not in levels:
        raise SetupError(f"log level {level!r} is unknown; use debug, info, warning or error")
    number = levels[level.upper()]
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr)
    renderers: list[structlog.typing.Processor] = (
        # The console renders exceptions itself, and warns when somebody has done it before.
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
