"""Puts a rebuilt pipeline in the place of its original once it has caught up (ADR 0081).

Both its job and this machine's copies of its tables must have caught up, as readers use the copies
from then on. The document and its tables change in one transaction, so nobody sees a new table with
old rows. Any gateway may do it; the others then find it done.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from gateway.authors import Author
from gateway.callers import ConfigSource
from gateway.control.changes.record import Changes
from gateway.control.stores.changes import ControlStore
from gateway.problems import Problem
from shared.config.configuration import Configuration
from shared.config.pipeline import Pipeline
from shared.config.table import Table

log = structlog.get_logger()

_LOOK_S = 0.5
# Another gateway finishes within this time; a Kafka that is down does not recover sooner.
_AGAIN_S = 5.0


class Switching:
    """Switches pipelines for one gateway process."""

    def __init__(
        self, config: ConfigSource, store: ControlStore, has_copy: Callable[[Table], bool]
    ) -> None:
        self._config = config
        self._store = store
        self._has_copy = has_copy

    async def run(self) -> None:
        """Switch pipelines as they get ready, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except Problem as problem:
                log.warning("pipeline.not_replaced", why=problem.detail)
                await asyncio.sleep(_AGAIN_S)

    async def look(self) -> None:
        """Switch the pipelines that are ready."""
        configuration = self._config.configuration
        if not any(map(configuration.replacement_of, configuration.replacements)):
            return
        states = await self._store.pipeline_states()
        for name in configuration.replacements:
            if (document := configuration.replacement_of(name)) is None:
                continue
            state = states.get(document.title)
            if state is None or state.fingerprint != document.fingerprint or not state.is_level:
                continue
            tables = configuration.replacements[name].built(configuration.tables)
            if all(map(self._has_copy, tables)):
                by = Author(document.tenant, "hifi")
                switched = partial(_switched, document=document)
                await self._store.change_all(switched, by=by, did="put in place")
                log.info("pipeline.replaced", pipeline=name, generation=document.generation)


async def _switched(configuration: Configuration, *, document: Pipeline) -> Changes:
    """Return the changes to store; none if this replacement is done, given up or superseded."""
    if configuration.replacement_of(document.name) != document:
        return []
    known = configuration.replacements[document.name]
    return [
        (document.config_key, document.to_json()),
        (known.config_key, None),
        *((table.config_key, table.to_json()) for table in known.built(configuration.tables)),
    ]
