"""`python -m deploy.aws.machine boot|stay|load|units`: the commands of an image's units."""

import argparse
import sys
from pathlib import Path

from deploy.aws.machine.boot import prepare
from deploy.aws.machine.instance import ADDRESS, Instance
from deploy.aws.machine.load import EVERY_S, publish
from deploy.aws.machine.stay import POLL_S, stay
from deploy.aws.machine.units import RUN, write_units
from shared.runtime.setup_error import SetupError


def main() -> int:
    parser = argparse.ArgumentParser(prog="hifi-machine", description=__doc__)
    parser.add_argument("what", choices=("boot", "stay", "load", "units"))
    parser.add_argument("--folder", type=Path, default=Path(RUN), help="where to write files")
    parser.add_argument("--metadata", default=ADDRESS, help="the metadata service")
    parser.add_argument("--every", type=float, help="seconds between two rounds")
    given = parser.parse_args()
    instance = Instance(given.metadata)
    try:
        match given.what:
            case "boot":
                prepare(instance, given.folder)
            case "stay":
                return stay(instance, poll_s=given.every or POLL_S)
            case "load":
                publish(instance, every_s=given.every or EVERY_S)
            case _:
                write_units(given.folder)
    except (SetupError, OSError) as error:
        sys.stderr.write(f"hifi-{given.what}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
