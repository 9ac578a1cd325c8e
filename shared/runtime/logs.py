"""Sets up a process's log: one line for each log event, as text on a terminal, else as JSON.

Lines of libraries have the same form. shared/runtime/log4j2.properties does this for Java.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def is_for_people() -> bool:
    return sys.stderr.isatty()


def configure_logs(*, service: str, level: str = "info") -> None:
    """Set up structlog and the standard library's logging; call it once, in __main__."""

    def named(_: object, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"service": service, **line}

    number = logging.getLevelNamesMapping()[level.upper()]
    described: list[structlog.typing.Processor] = [
        named,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderers: list[structlog.typing.Processor] = (
        # The console renderer formats exceptions itself, and warns if they are already formatted.
        [structlog.dev.ConsoleRenderer()]
        if is_for_people()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*described, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])
    structlog.configure(
        processors=[*described, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
