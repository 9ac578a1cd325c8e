"""`python -m deploy.aws`: writes a site's templates, and makes values for its secrets."""

import argparse
import json
import secrets
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from deploy.aws.site import read_site
from deploy.local.secret_keys import OPERATOR_KEY, VARIABLE, new_operator_key
from shared.runtime.secret_box import new_key
from shared.scale.scale_error import ScaleError

# The contents of kafka.SECRETS, as the variables that they become.
MADE: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "seal": lambda: {VARIABLE: new_key()},
    "control": lambda: {OPERATOR_KEY: new_operator_key()},
    "statements": lambda: {
        "HIFI_OBSERVE_STATEMENT_KEY": secrets.token_hex(32),
        "HIFI_OBSERVE_CONSOLE_COOKIE_SECRET": secrets.token_hex(32),
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.aws", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    synth = commands.add_parser("synth", help="write templates, if every check of cdk-nag passes")
    synth.add_argument("site", type=Path, help="the site's TOML file")
    synth.add_argument("--out", default="build/aws", help="folder for the templates")
    secret = commands.add_parser("secret", help="print a new value of a secret: pipe it to AWS")
    secret.add_argument("name", choices=sorted(MADE))
    given = parser.parse_args()
    if given.command == "secret":
        sys.stdout.write(json.dumps(MADE[given.name]()))
        return 0
    try:
        site = read_site(given.site.name, given.site.read_text(encoding="utf-8"))
    except (ScaleError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    # These imports take a minute, and only `synth` needs them.
    from deploy.aws.app import app_of  # noqa: PLC0415

    app_of(site, given.out).synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
