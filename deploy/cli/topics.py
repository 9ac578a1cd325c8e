"""`hifi topics`: creates Hifi's topics in your own Kafka; `hifi up` creates those in its Kafka."""

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
        bool, typer.Option("--grant", help="Also give each service's user its rights.")
    ] = False,
) -> None:
    """Create Hifi's missing topics with the settings in HIFI_KAFKA_* (docs/kafka.md).

    Existing topics are not changed: `hifi doctor --kafka` reports what is wrong with them.

        hifi topics --kafka broker-1:9092,broker-2:9092

        hifi topics --kafka broker-1:9096 --grant
    """
    settings = read_settings(TopicSettings, program="hifi topics")
    made = asyncio.run(_make(kafka, settings, grant=grant))
    for name in made:
        out.print(f"made {name}")
    out.print(f"{len(made) or 'no'} topic{'' if len(made) == 1 else 's'} made.")
    if grant:
        out.print(f"{', '.join(RIGHTS)} have the rights listed in docs/kafka.md.")


async def _make(kafka: str, settings: TopicSettings, *, grant: bool) -> list[str]:
    specs = fixed_specs([t.name for t in RetrySchedule().tiers], settings.partition_counts)
    async with topic_admin(kafka) as admin:
        if grant:
            # Grants come first: once Kafka has any grant, users without one may do nothing.
            for user, rights in RIGHTS.items():
                await admin.grant(user, rights)
        return await admin.create_missing(specs, settings.copies)
