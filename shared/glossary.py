"""The words of Hifi, each explained: the same on screens, in the API, in metrics and in code."""

import re
from dataclasses import dataclass

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_MARKS = re.compile(r"[`*]")
# Nobody reads more than this to its end while a pointer rests on a word.
_HINT_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Word:
    """A name, and its meaning."""

    name: str
    # Markdown, with links as from a page of docs.
    says: str
    # How it stands in tables and sentences as well, in lower case.
    also: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The name as an address has it."""
        return re.sub(r"[^a-z]+", "-", self.name).strip("-")

    @property
    def plain(self) -> str:
        """Without the marks of Markdown."""
        return _MARKS.sub("", _LINK.sub(r"\1", self.says))


# The counts of a balance, in the order in which people read them.
COUNTS = ("acked", "delivered", "queued", "waiting", "dead", "unaccounted")

WORDS = (
    Word(
        "acknowledged",
        "the gateway has said 2xx: Kafka has the event. From then on Hifi answers for it",
        ("acked", "events acknowledged"),
    ),
    Word("attempt", "one HTTP request to a destination, and what came of it", ("attempts",)),
    Word(
        "audit",
        "the job that compares the ids that each minute acknowledged with their outcomes",
    ),
    Word("backlog", "all that a destination is still to get: queued and waiting events"),
    Word("batch", "the events of one request, to us or from us"),
    Word(
        "books",
        "for each destination: acknowledged = delivered + queued + waiting + dead + unaccounted",
    ),
    Word(
        "breaker",
        "stops requests to a destination that fails, and lets a single one try it after a while"
        " ([flow](flow.md#breaker))",
    ),
    Word(
        "breaker open",
        "why events wait: the destination fails again and again, so it is left alone for a while",
    ),
    Word("cannot tell", "something could not be read, or a minute is overdue"),
    Word(
        "checked",
        "every event of a minute has an outcome that can be proven; *unchecked*: not yet;"
        " *overdue*: not yet, though it should be",
        ("unchecked", "overdue"),
    ),
    Word(
        "dead letter",
        "an event that was given up, with its reason; it can be [sent again](dead-letters.md)",
        ("dead letters", "dead"),
    ),
    Word("delivered", "the destination has taken it, or its filter has left it out"),
    Word("delivery", "the service, and the stage, that sends events the first time"),
    Word(
        "delivery due",
        "an event is due once to each destination of its stream: 1 event to 3 destinations is 3",
        ("deliveries due",),
    ),
    Word("destination", "an HTTP address that a stream's events go to, and [how](destinations.md)"),
    Word(
        "duplicate",
        "an event that may have arrived before: labelled `hifi-maybe-duplicate`, and known by its"
        " id",
    ),
    Word("event", "what you send: your bytes, which stay as they are"),
    Word(
        "failed attempt",
        "why events wait: a request was not taken (5xx, time out, no connection), and is made"
        " again later",
    ),
    Word("gateway", "the service that takes events and settings over HTTP"),
    Word(
        "held",
        "refused by everything it was sent to; kept until somebody mends the destination"
        " (`hold_on_rejects`)",
    ),
    Word(
        "key",
        "for the API: the permissions of whoever sends it. *Ordering key*: events with the same key"
        " are in one Kafka partition, in order",
    ),
    Word("lag", "from the event's own time, or from its acceptance, to its delivery"),
    Word(
        "lane",
        "reads a stream for one destination, sends its events, and notes what came of them",
    ),
    Word(
        "lost",
        "acknowledged, and proven to be nowhere: with its id, and the stage that lost it",
        ("loss",),
    ),
    Word("oldest", "how long ago the oldest event that has no outcome yet was accepted"),
    Word("outcome", "how an event ended at a destination: delivered, waiting, or dead"),
    Word(
        "p95",
        "of 100 events delivered in the last minutes 95 took no longer, from their acceptance on",
    ),
    Word(
        "parked",
        "why events wait: they were not sent, as the destination is paused or held, or had no"
        " room for them; no attempt is charged",
    ),
    Word(
        "pipeline",
        "makes [streams out of streams](pipelines.md), or writes them to a table, an archive or a"
        " database",
    ),
    Word(
        "queue",
        "the stage between the gateway and delivery: stored in Kafka, until the lane's next turn",
    ),
    Word(
        "queued",
        "in the stream, and without an outcome so far: not tried yet, or its answer is still to"
        " come",
    ),
    Word(
        "rate-limited",
        "why events wait: the destination asked for less, by 429 or `Retry-After`, or its limit in"
        " Hifi is reached",
    ),
    Word(
        "receipt",
        "Kafka's record of what became of events at a destination; for you, `hifi receipt"
        " REQUEST_ID`",
    ),
    Word("redrive", "sends dead letters again"),
    Word("replay", "sends what a stream has to a destination once more"),
    Word("resend", "sends one event again, to where it has arrived or was given up"),
    Word("retrier", "the service, and the stage, that makes the attempts after the first ones"),
    Word(
        "retry tier",
        "where events wait for their next attempt: 30 s, 5 min, 30 min, 2 h or 8 h",
    ),
    Word(
        "stage",
        "a step that an event passes: gateway, queue, delivery, and for some a retry tier and the"
        " retrier",
    ),
    Word("statement", "what Hifi signs about a minute, once it is checked"),
    Word("stream", "a named flow of events"),
    Word("table", "the latest value of each key, [on every machine](tables.md)"),
    Word("tenant", "whose streams, keys and quotas they are"),
    Word(
        "unaccounted",
        "acknowledged - delivered - queued - waiting - dead: it should be 0, and is counted, never"
        " assumed",
    ),
    Word("verdict", "one word for how a destination is: [OK, SLOW, FAILING ...](console.md)"),
    Word(
        "waiting",
        "tried and not taken, or kept back, and due to be tried again",
        ("waiting for a retry",),
    ),
)

# Words that had this meaning once, each with the one that has it now: no text says them any more.
RETIRED = {
    "check pending": "unchecked",
    "delivery worker": "lane",
    "destination down": "breaker open",
    "pending": "queued",
    "retry queue": "retry tier",
    "throttled": "rate-limited",
    "unsettled": "unchecked",
}

_BY_NAME = {name: word for word in WORDS for name in (word.name, *word.also)}


def word_of(text: str) -> Word | None:
    """The word that a head or a name stands for."""
    return _BY_NAME.get(text.lower())


def hint_of(word: Word) -> str:
    """Its explanation, as short as it is read beside a table."""
    plain = word.plain
    hint = plain if len(plain) <= _HINT_CHARS_MAX else plain.partition(". ")[0]
    return f"{hint[0].upper()}{hint[1:]}."


def table() -> str:
    """All of them, as a table in Markdown."""
    rows = [f"| **{word.name}** | {word.says} |" for word in WORDS]
    return "\n".join(["| word | meaning |", "|---|---|", *rows])
