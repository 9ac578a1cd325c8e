"""README, tutorial, how-tos and two references are run from top to bottom; output is compared."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.cli.control.pipeline_files import read_document, to_put
from deploy.local.ports import pick_free
from deploy.local.stack_settings import PORTS
from shared.config.destination import Destination
from shared.runtime.control_client import ControlClient
from tests.support.deploy.java_sources import has_compiler, make_java
from tests.support.deploy.shown_commands import (
    README,
    Terminal,
    dated,
    is_shown,
    run_page,
    shown,
)
from tests.support.deploy.stack_fixtures import RunningHifi
from tests.support.suite.programs import has_express, need_express, program
from tests.tidy import sources

pytestmark = pytest.mark.integration

DOCS = sources.ROOT / "docs"
HOW_TO = sorted(f"how-to/{page.name}" for page in (DOCS / "how-to").glob("*.md"))
RECEIVE = "how-to/receive.md"
# It imports what it has exported, so nobody else may change settings meanwhile.
MOVE = "how-to/move.md"
# Archives and databases have tests of their own, with the programs that they need.
REFERENCE = ["pipelines.md", "tables.md"]
# Each page is a shell that starts commands, and there are two cores.
AT_ONCE = 3
# The ports on which the pages expect a receiver.
RECEIVERS = ("9001", "9004", "9005")


def test_what_each_page_shows_is_what_comes(hifi: RunningHifi, tmp_path: Path) -> None:
    """Pages run side by side, as they spend most of their time waiting."""
    program("curl")
    pages = [README, "tutorial.md", *REFERENCE, *HOW_TO]
    if not has_express():
        pages.remove(RECEIVE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = {
            page: pool.submit(_read, hifi, tmp_path / Path(page).stem, page)
            for page in pages
            if page != MOVE
        }
    with ThreadPoolExecutor(1) as pool:
        done[MOVE] = pool.submit(_read, hifi, tmp_path / Path(MOVE).stem, MOVE)
    wrong = {page: error for page, each in done.items() if (error := each.exception())}
    assert not wrong, "\n\n".join(f"docs/{page}: {error}" for page, error in wrong.items())
    if RECEIVE not in pages:
        need_express()


def _read(hifi: RunningHifi, folder: Path, page: str) -> None:
    commands = shown(page, _names(hifi, page))
    assert commands
    if page == README:
        _have_what_up_makes(hifi)
    for command, _ in commands:
        if command.startswith("hifi destinations put "):
            stream, name, url = command.split()[3:6]
            hifi.added.append(Destination(stream, name, url))
    folder.mkdir()
    _have_its_document(folder, page)
    if page == RECEIVE and not has_compiler():
        make_java(folder, sources.ROOT / "examples" / "java" / "Receive.java")
    # The tutorial verifies a minute that is over.
    dated(folder, minutes_ago=10)
    run_page(Terminal(folder, _environ(hifi)), commands)


def _have_its_document(folder: Path, page: str) -> None:
    """Write the first document of a page on pipelines to the files that its commands name."""
    shown_first = re.search(
        r"^```yaml\n(name: (\S+)\n.*?)^```", _text(page), re.MULTILINE | re.DOTALL
    )
    if page in REFERENCE and shown_first is not None:
        (folder / f"{shown_first[2]}.yaml").write_text(shown_first[1])
        as_json = json.dumps(to_put(read_document(folder / f"{shown_first[2]}.yaml")))
        (folder / f"{shown_first[2]}.json").write_text(as_json)


def _text(page: str) -> str:
    return (DOCS / page).read_text()


def _have_what_up_makes(hifi: RunningHifi) -> None:
    """Give each page a stream of its own, with the sample destination, like `make up`."""
    names = _names(hifi, README)
    sample = Destination(names["demo"], "sample", f"http://127.0.0.1:{names['8090']}/")
    control = ControlClient(hifi.gateway, None)
    control.call("PUT", "streams", sample.stream)
    path = ("streams", sample.stream, "destinations", sample.name)
    control.call("PUT", *path, body={"url": sample.url})
    hifi.added.append(sample)


@pytest.mark.parametrize(
    ("says", "told", "is_so"),
    [
        ("2 accepted, in ...\n", "2 accepted, in 0.3 s\n", True),
        ("...\na 5\n", "b\na   5\n", True),
        ("a 5\n", "b\na 5\n", False),
        ("...\na 5\n", "b\na 4\n", False),
    ],
)
def test_what_a_page_shows_wrongly_is_found(says: str, told: str, *, is_so: bool) -> None:
    assert is_shown(says, told) is is_so


def _names(hifi: RunningHifi, page: str) -> dict[str, str]:
    """Return names for a page's own stream and for the ports of this Hifi."""
    settings = hifi.stack.settings
    ports = {"8080": settings.gateway_port, "8090": settings.sample_port}
    ports |= dict(zip(RECEIVERS, pick_free(len(RECEIVERS)), strict=True))
    stream = f"of-{Path(page).stem.lower()}"
    named = {"demo" if page == README else "orders": stream}
    return named | {name: str(port) for name, port in ports.items()}


def _environ(hifi: RunningHifi) -> dict[str, str]:
    settings = hifi.stack.settings
    return {
        "HIFI_GATEWAY": hifi.gateway,
        "HIFI_KAFKA": hifi.kafka,
        "HIFI_CONSOLE": f"http://127.0.0.1:{settings.console_port}",
        "HIFI_UP_DATA": str(settings.folder),
        "HIFI_DELIVERY_ALLOW_PRIVATE": "true",
        **{f"HIFI_UP_{name.upper()}": str(getattr(settings, name)) for name in PORTS},
    }
