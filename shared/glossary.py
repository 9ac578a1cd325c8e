"""Explains Hifi's words: the same ones on screens, in the API, in metrics and in code."""

import re
from dataclasses import dataclass

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_MARKDOWN = re.compile(r"[`*]")
# Nobody finishes a longer text while the pointer rests on a word.
_HINT_CHARS_MAX = 200


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its meaning."""

    name: str
    # Markdown. Links are relative to docs/.
    says: str
    # Other forms of the word in tables and sentences, in lower case.
    also: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """The name as the fragment of a URL."""
        return re.sub(r"[^a-z]+", "-", self.name).strip("-")

    @property
    def plain(self) -> str:
        """The meaning without Markdown."""
        return _MARKDOWN.sub("", _LINK.sub(r"\1", self.says))


# The counts of a balance, in reading order.
COUNTS = ("acked", "delivered", "queued", "waiting", "dead", "unaccounted")

WORDS = (
    Word(
        "acknowledged",
        "Kafka has the event, and the gateway has answered 2xx. From then on Hifi is responsible"
        " for it",
        ("acked", "events acknowledged"),
    ),
    Word("attempt", "one HTTP request to a destination, and its result", ("attempts",)),
    Word(
        "audit",
        "the job that compares the ids acknowledged in each minute with their outcomes",
    ),
    Word("backlog", "all events that a destination has yet to receive: queued and waiting ones"),
    Word("batch", "the events of one request, to Hifi or from Hifi"),
    Word(
        "books",
        "the balance of each destination: acknowledged = delivered + queued + waiting + dead +"
        " unaccounted",
    ),
    Word(
        "breaker",
        "stops requests to a failing destination, and lets a single one test it after a while"
        " ([flow](flow.md#breaker))",
    ),
    Word(
        "breaker open",
        "why events wait: the destination keeps failing, so Hifi sends it nothing for a while",
    ),
    Word(
        "cannot tell",
        "Hifi does not know whether events are missing: something could not be read, or a minute is"
        " overdue",
    ),
    Word(
        "checked",
        "every event of a minute has a proven outcome; *unchecked*: the check is not finished;"
        " *overdue*: it is not finished, though it should be",
        ("unchecked", "overdue"),
    ),
    Word(
        "dead letter",
        "an event that Hifi gave up, with the reason; you can [send it again](dead-letters.md)",
        ("dead letters", "dead"),
    ),
    Word("delivered", "the destination has accepted the event, or its filter has left it out"),
    Word("delivery", "the service, and the stage, that sends events for the first time"),
    Word(
        "delivery due",
        "one event to one destination: an event of a stream with 3 destinations is 3 deliveries",
        ("deliveries due",),
    ),
    Word(
        "destination",
        "an HTTP address that a stream's events go to, with its [settings](destinations.md)",
    ),
    Word(
        "duplicate",
        "an event that may have arrived before: it is labelled `hifi-maybe-duplicate` and has the"
        " same id",
    ),
    Word("event", "the bytes that you send; Hifi delivers them unchanged"),
    Word(
        "failed attempt",
        "why events wait: a request failed (5xx, timeout, no connection) and will be repeated",
    ),
    Word("gateway", "the service that accepts events and settings over HTTP"),
    Word(
        "held",
        "the destination refuses every request; its events are kept until somebody fixes it"
        " (`hold_on_rejects`)",
    ),
    Word(
        "key",
        "for the API: a secret that gives its sender permissions. *Ordering key*: events with the"
        " same key are in one Kafka partition, in order",
    ),
    Word("lag", "the time from an event's own timestamp, or from its acceptance, to its delivery"),
    Word(
        "lane",
        "reads a stream for one destination, sends its events, and records their outcomes",
    ),
    Word(
        "lost",
        "acknowledged, but proven to be missing; Hifi names its id and the stage that lost it",
        ("loss",),
    ),
    Word("oldest", "the age of the oldest event without an outcome, since it was accepted"),
    Word("outcome", "how an event ended at a destination: delivered, waiting, or dead"),
    Word(
        "p95",
        "95 of 100 events delivered in the last minutes took no longer than this, from acceptance"
        " to delivery",
    ),
    Word(
        "parked",
        "why events wait: they were not sent, because the destination is paused or held, or had no"
        " room for them; no attempt is counted",
    ),
    Word(
        "pipeline",
        "makes [new streams from streams](pipelines.md), or writes them to a table, an archive or a"
        " database",
    ),
    Word(
        "queue",
        "the stage between the gateway and delivery: events are stored in Kafka until the lane's"
        " next turn",
    ),
    Word(
        "queued",
        "in the stream, without an outcome so far: not sent yet, or not answered yet",
    ),
    Word(
        "rate-limited",
        "why events wait: the destination asked for fewer requests (429 or `Retry-After`), or its"
        " limit in Hifi is reached",
    ),
    Word(
        "receipt",
        "the record in Kafka of events' outcomes at a destination; you read it with `hifi receipt"
        " REQUEST_ID`",
    ),
    Word("redrive", "a resend of dead letters"),
    Word("replay", "a resend of a stream's stored events to one destination"),
    Word(
        "resend",
        "sends events again at somebody's request. There are three kinds: of one event, of dead"
        " letters (*redrive*), and of a part of a stream (*replay*)",
    ),
    Word("retrier", "the service, and the stage, that makes all attempts after the first"),
    Word(
        "retry tier",
        "where events wait for their next attempt: 30 s, 5 min, 30 min, 2 h or 8 h",
    ),
    Word("share", "one party's part of a whole: of a quota, a rate, the slots, or an event's time"),
    Word(
        "slot",
        "a fixed part of a service's lanes; one process at a time owns it, by a lease"
        " ([fleet](fleet.md#lanes))",
    ),
    Word(
        "stage",
        "a step that an event passes through: gateway, queue, delivery, and for some events a"
        " retry tier and the retrier",
    ),
    Word("statement", "Hifi's signed account of a minute, made once the minute is checked"),
    Word("stream", "a named flow of events"),
    Word("table", "the latest value of each key, kept [on every machine](tables.md)"),
    Word(
        "task place",
        "room for one Spark task at a time; each service sets the number of its places"
        " ([fleet](fleet.md))",
    ),
    Word("tenant", "the owner of streams, keys and quotas"),
    Word(
        "trial",
        "a run at somebody's request that changes nothing: of a pipeline's document with a few"
        " events, or of a channel with a test message",
    ),
    Word(
        "unaccounted",
        "acknowledged - delivered - queued - waiting - dead: it should be 0; Hifi counts it and"
        " never assumes it",
    ),
    Word("verdict", "one word for a destination's health: [OK, SLOW, FAILING ...](console.md)"),
    Word(
        "waiting",
        "sent without success, or kept back, and due for another attempt",
        ("waiting for a retry",),
    ),
)

# Words that no text uses any more, each with the word that replaced it.
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
    """Return the word for a column head or a name."""
    return _BY_NAME.get(text.lower())


def hint_of(word: Word) -> str:
    """Return a word's explanation as one short sentence."""
    plain = word.plain
    hint = plain if len(plain) <= _HINT_CHARS_MAX else plain.partition(". ")[0]
    return f"{hint[0].upper()}{hint[1:]}."


def table() -> str:
    """Return all words as a Markdown table."""
    rows = [f"| **{word.name}** | {word.says} |" for word in WORDS]
    return "\n".join(["| word | meaning |", "|---|---|", *rows])
