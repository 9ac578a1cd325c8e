"""`hifi soak`: runs all of Hifi for days with traffic and faults, and accounts for every event."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.printing import out, talk
from deploy.cli.scale.ask_options import Members
from deploy.cli.scale.fresh import fresh_stack
from deploy.cli.scale.inputs import span_s
from deploy.cli.scale.rate import require_load_tests
from deploy.local.children import session_of
from deploy.local.keeper import Keeper
from deploy.local.process_faults import NotHereError, ProcessFaults
from shared.config.destination import Latency

_PAGES = Path("build/soak")
_NOT_WELL = 3


@dataclass
class HurtHifi:
    """A Hifi on this machine whose processes the soak kills and freezes."""

    keeper: Keeper

    @property
    def gateway(self) -> str:
        return self.keeper.stack.gateway

    @property
    def kafka(self) -> str:
        return self.keeper.stack.bootstrap_servers

    def hurt(self, kind: str) -> tuple[str, Callable[[], None]]:
        from loadtests.soak.soaking import NotNowError  # noqa: PLC0415 - as below

        what, _, target = kind.partition(" ")
        faults = ProcessFaults(self.keeper)
        try:
            return (faults.kill if what == "kill" else faults.freeze)(target)
        except NotHereError as error:
            raise NotNowError(str(error)) from error

    def unwell(self) -> list[str]:
        return self.keeper.unwell()

    def families(self) -> Mapping[str, Sequence[int]]:
        return {name: session_of(child.pid) for name, child in self.keeper.children.items()}

    @property
    def deaths(self) -> list[str]:
        return [f"{name} {how}: {words}" for name, how, words in self.keeper.died]


def course_of(  # noqa: PLR0917 - typer makes an option of each
    rate: Annotated[float, typer.Option(help="Events per second, on average.", min=1)] = 500.0,
    duration: Annotated[
        str, typer.Option(metavar="SPAN", help="Duration of the traffic: 5m, 2h.")
    ] = "30m",
    seed: Annotated[int, typer.Option(help="The same seed makes the same faults.")] = 1,
    fault_every: Annotated[
        str, typer.Option(metavar="SPAN", help="Time between faults, on average.")
    ] = "75s",
    batch: Annotated[int, typer.Option(help="Events in a request.", min=1, max=5_000)] = 10,
    event_bytes: Annotated[int, typer.Option(help="Size of an event.", min=90)] = 500,
    latency: Annotated[Latency, typer.Option(help="The destination's setting.")] = "micro-batch",
) -> Members:
    return {
        "rate": rate,
        "duration_s": span_s(duration),
        "seed": seed,
        "every_s": span_s(fault_every),
        "batch": batch,
        "event_bytes": event_bytes,
        "latency": latency,
    }


@options.made_of(course=course_of)
def soak(
    course: Members,
    folder: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for figures and page.")
    ] = _PAGES,
) -> None:
    """Soak-test a separate Hifi: days of traffic with faults, and an account of every event.

    Processes, including Kafka, are killed and frozen, and the destination is slow at times. At the
    end each acknowledged event must be delivered, waiting or dead, and no process may have grown.
    Exit code 3 when something is wrong; the page says what.

        hifi soak --rate 500 --duration 30m
    """
    require_load_tests("Soaks", "make soak")
    # Imported here, because they may be missing (see above).
    from loadtests.soak import soaking  # noqa: PLC0415
    from loadtests.soak.course import Course  # noqa: PLC0415
    from loadtests.soak.page import soak_page  # noqa: PLC0415

    with fresh_stack() as stack:
        keeper = Keeper(stack=stack)
        watch = threading.Thread(target=keeper.watch, name="keeper", daemon=True)
        watch.start()
        try:
            result = soaking.soak(Course(**course), HurtHifi(keeper), talk.print)
        finally:
            keeper.stop_watching()
            watch.join()
    folder.mkdir(parents=True, exist_ok=True)
    name = f"soak-{result['generator']['date'].replace(':', '')}"
    file, page = folder / f"{name}.json", folder / f"{name}.html"
    file.write_text(json.dumps(result))
    page.write_text(soak_page(result))
    for reason in result["wrong"]:
        talk.print(f"  {reason}", style="red")
    ends, done = result["ends"], [fault for fault in result["faults"] if fault["proof"]]
    out.print(
        f"{ends['acked']:,} acknowledged = {ends['delivered']:,} delivered + {ends['waiting']:,}"
        f" waiting + {ends['dead']:,} dead, {ends['unaccounted']:,} unaccounted;"
        f" {len(done)} faults\n{file}\n{page}"
    )
    if result["wrong"]:
        raise typer.Exit(_NOT_WELL)
