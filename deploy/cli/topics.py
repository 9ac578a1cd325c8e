"""`hifi topics`: makes Hifi's topics in a Kafka of one's own; `hifi up` does it in its own."""

import asyncio
from typing import Annotated

import typer

from deploy.cli.printing import out
from shared.event.rights import RIGHTS
from shared.event.topics import fixed_specs
from shared.retry.schedule import RetrySchedule
from shared.runtime.kafka.topic_admin import topic_admin
from shared.runtime.settings import TopicSettings, read_settings


def topics(
    kafka: Annotated[
        str, typer.Option(envvar="HIFI_KAFKA", metavar="HOST:PORT", help="Kafka's address.")
    ],
    grant: Annotated[
        bool, typer.Option("--grant", help="Give each service's user its rights, too.")
    ] = False,
) -> None:
    """Make the topics that Hifi needs and that are missing, as HIFI_KAFKA_* says (docs/kafka.md).

    Existing topics are unchanged: `hifi doctor --kafka` says what is wrong with them.

        hifi topics --kafka broker-1:9092,broker-2:9092

        hifi topics --kafka broker-1:9096 --grant
    """
    settings = read_settings(TopicSettings, program="hifi topics")
    made = asyncio.run(_make(kafka, settings, grant=grant))
    for name in made:
        out.print(f"made {name}")
    out.print(f"{len(made) or 'no'} topic{'' if len(made) == 1 else 's'} made.")
    if grant:
        out.print(f"{', '.join(RIGHTS)} may do what docs/kafka.md says.")


async def _make(kafka: str, settings: TopicSettings, *, grant: bool) -> list[str]:
    specs = fixed_specs([t.name for t in RetrySchedule().tiers], settings.partition_counts)
    async with topic_admin(kafka) as admin:
        if grant:
            # First: once Kafka has any grant, users without rights of their own may do nothing.
            for user, rights in RIGHTS.items():
                await admin.grant(user, rights)
        return await admin.create_missing(specs, settings.copies)
