"""A site on AWS from its file, with the sizes of a plan that is made in the test."""

from functools import cache

from typer.testing import CliRunner

from deploy.aws.site import Site, read_site
from deploy.cli.commands import app

OWN = """\
[site]
name = "prod"
region = "us-east-1"
zones = ["us-east-1a", "us-east-1b", "us-east-1c"]
domain = "events.example.com"
certificate = "arn:aws:acm:us-east-1:111122223333:certificate/0a1b2c3d"
image = "ami-0123456789abcdef0"
release = "hifi-0.1.0.tar.gz"
email = "ops@example.com"

"""

# The second is large enough for gateways to scale.
ASKS = {
    "express": ("--events-per-s", "120000", "--per-day", "5TB", "--fan-out", "2"),
    "standard": ("--events-per-s", "200000", "--fan-out", "2", "--gateway-instance", "c7g.large"),
}


@cache
def plan(output: str, kafka: str = "express") -> str:
    """Return the output of `hifi plan`."""
    result = CliRunner().invoke(app, ["plan", *ASKS[kafka], "--kafka", kafka, "-o", output])
    assert result.exit_code == 0, result.output
    return result.stdout


def site_of(kafka: str = "express") -> Site:
    # Combine the less usual kind of brokers with the less usual way to the internet: an address.
    way_out = 'way_out = "address"\n\n' if kafka == "standard" else ""
    return read_site("site.toml", OWN.rstrip() + "\n" + way_out + plan("toml", kafka))
