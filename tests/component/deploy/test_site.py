"""A site's file: templates are made from its values, and each wrong value gives a sentence."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.aws.__main__ import MADE
from deploy.aws.services import services_of
from deploy.aws.site import read_site
from deploy.aws.topics import topic_variables
from gateway.settings import Settings
from observe.settings import ConsoleSettings, ObserveSettings
from shared.runtime.settings import SecretSettings, TopicSettings
from shared.scale.scale_error import ScaleError
from tests.support.deploy.aws_sites import OWN, plan, site_of


def test_a_site_is_its_own_part_and_the_sizes_of_a_plan() -> None:
    site = site_of()
    assert site.zones == ("us-east-1a", "us-east-1b", "us-east-1c")
    assert (site.gateway_cores, site.broker.in_mb_s, site.kafka_release) == (8, 62.5, "3.9.x")
    assert site_of("standard").kafka_release == "3.9.x.kraft"


@pytest.mark.parametrize(
    ("instead_of", "there_is", "says"),
    [
        ('name = "prod"', 'name = "Prod"', "name is 'Prod', and must be up to 16 of a-z, 0-9, -."),
        ('name = "prod"', "", r"\[site\] must have name."),
        ('name = "prod"', 'name = "prod"\nnmae = 1', r"\[site\] has no setting 'nmae'."),
        ('region = "us-east-1"', 'region = "here"', "region is 'here', and must be such as us-"),
        ('"us-east-1b"', '"us-east-1a"', "and must be three zones of the region."),
        ('"us-east-1b"', '"us-west-2b"', "zones must be three zones of the region, us-east-1."),
        ('"us-east-1b"', "7", "and must be three zones of the region."),
        ('domain = "events.example.com"', "domain = 1", "domain is 1, and must be a name in DNS."),
        ("arn:aws:acm", "acm", "and must be the ARN of a certificate in ACM."),
        ("ami-0123456789abcdef0", "latest", "image is 'latest', and must be such as ami-"),
        ("hifi-0.1.0.tar.gz", "../x.zip", r"and must be a file called \*.tar.gz."),
        ("ops@example.com", "ops", "email is 'ops', and must be an address."),
        ("[plan]", 'cidr = "10.0.0.0/24"\n[plan]', "must be a network of 16 bits"),
        ("[plan]", 'cidr = "10.0.0.1/16"\n[plan]', "must be a network of 16 bits"),
        ("[plan]", "spot_share = 2\n[plan]", "spot_share is 2, and must be from 0 to 1."),
        ("[plan]", 'way_out = "door"\n[plan]', "way_out is 'door', and must be nat or address."),
        ("[plan]", "observers = 3\n[plan]", "observers is 3, and must be 1 or 2."),
        ("[plan]", "lag_target_s = 0\n[plan]", "lag_target_s is 0, and must be above 0."),
        ("[plan]", "lag_target_s = true\n[plan]", "lag_target_s is True, and must be above 0."),
        ("[site]", "[sight]", "has no sizes of a plan"),
        ("broker_count = 3", "broker_count = 4", "broker_count is 4, and must be a multiple of 3"),
        ("disk_gb = 0", "disk_gb = 5", "standard brokers need disk_gb"),
        ("express.m7g.2xlarge", "express.m1.tiny", "not among the express brokers of"),
        ("count_max = 6", "count_max = 2", r"\[delivery\] has from 3 to 2 machines"),
        ("use = 0.7", "use = 1.5", r"\[delivery\] needs a rating above 0 and a use between"),
        ("c7g.2xlarge", "pdp-11", "'pdp-11' is not a machine in the price file"),
    ],
)
def test_a_wrong_value_is_a_sentence(instead_of: str, there_is: str, says: str) -> None:
    text = OWN + plan("toml")
    assert instead_of in text
    with pytest.raises(ScaleError, match=says):
        read_site("site.toml", text.replace(instead_of, there_is))


def test_the_pages_example_is_a_site() -> None:
    page = (Path(__file__).parents[3] / "docs" / "aws.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert read_site("site.toml", example + plan("toml")).region == "eu-central-1"


def test_a_file_without_a_site_says_where_one_is_shown() -> None:
    with pytest.raises(
        ScaleError, match=r"site.toml has no table \[site\]: docs/aws.md shows one."
    ):
        read_site("site.toml", plan("toml"))


def test_the_program_says_so_and_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN.replace("prod", "PROD") + plan("toml"))
    ended = subprocess.run(
        [sys.executable, "-m", "deploy.aws", "synth", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("mine.toml: name is 'PROD', and must be")


def test_services_take_what_they_are_told_and_the_secrets_that_are_made_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIFI_KAFKA_USER", "gateway")
    monkeypatch.setenv("HIFI_KAFKA_PASSWORD", "p")
    made = {name: make() for name, make in MADE.items()}
    assert made != {name: make() for name, make in MADE.items()}
    for group in ("gateway", "workers", "observe"):
        for service in services_of(site_of(), group):
            told = [
                topic_variables(site_of()),
                service.env,
                *(made[name] for name in service.secrets),
            ]
            for name, value in {key: v for each in told for key, v in each.items()}.items():
                monkeypatch.setenv(name, value)
    # Each of these settings ends the program with a sentence if a value is wrong.
    gateway = Settings()
    assert (gateway.host, gateway.drain_notice_s) == ("0.0.0.0", 15)
    assert gateway.operator_key == made["control"]["HIFI_GATEWAY_OPERATOR_KEY"]
    assert SecretSettings().secret_keys == made["seal"]["HIFI_SECRET_KEYS"]
    assert ObserveSettings().signing_key == made["statements"]["HIFI_OBSERVE_STATEMENT_KEY"]
    assert ConsoleSettings().gateway == "https://events.example.com"
    assert json.dumps(made)
    assert TopicSettings().partition_counts.ledger == site_of().sizes.topics.ledger_partitions
