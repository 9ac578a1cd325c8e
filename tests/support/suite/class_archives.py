"""Makes the suite's JVMs start from class archives, in a third of their usual time.

A machine that has run Hifi once has them. On a new one, as in continuous integration, they are
written when the first delivery ends in order; the Hifi that tests share only ends after all tests.
"""

import fcntl
import os
from pathlib import Path

from deploy.local.stack import Stack
from shared.config.destination import Destination
from shared.runtime.java.jars import ensure_jars
from shared.runtime.java.java import find_java
from shared.runtime.spark.session import class_archive
from tests.support.deploy.stack_fixtures import RunningHifi, stack_settings, wait_until
from tests.support.servers.scripted_destination import scripted_destination


def make_class_archives(cache: Path, folder: Path) -> None:
    """Unless archives exist, run a Hifi that delivers an event; only one of the parts does so."""
    jars = ensure_jars("spark", cache=cache)
    archive = class_archive(find_java(), jars, cache=cache, folder=folder)
    with (cache / "classes.making").open("w") as made_by_one:
        fcntl.flock(made_by_one, fcntl.LOCK_EX)
        if archive.options(may_make=False):
            return
        stack = Stack(stack_settings(folder, cache), environ=os.environ, say=lambda _: None)
        stack.start(lambda _: None)
        try:
            with scripted_destination() as destination:
                hifi = RunningHifi(stack)
                hifi.add(Destination("first", "to", destination.url))
                assert hifi.post("first", [{"id": "one"}]).status_code == 200
                wait_until(
                    lambda: destination.accepted_ids.total() == 1, what="the event is delivered"
                )
        finally:
            stack.stop()
