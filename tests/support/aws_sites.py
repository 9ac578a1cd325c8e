"""A site on AWS as its file says it, with the sizes of a plan that is made in the test."""

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


@cache
def plan(output: str, kafka: str = "express") -> str:
    """What `hifi plan` prints."""
    ask = ["--events-per-s", "120000", "--per-day", "5TB", "--fan-out", "2", "--kafka", kafka]
    result = CliRunner().invoke(app, ["plan", *ask, "--output", output])
    assert result.exit_code == 0, result.output
    return result.stdout


def site_of(kafka: str = "express") -> Site:
    return read_site("site.toml", OWN + plan("toml", kafka))
