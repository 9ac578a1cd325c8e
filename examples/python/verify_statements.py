"""Checks the statements of a stream with only the standard library and `openssl`.

    curl -s "$HIFI/v1/streams/orders/statements?limit=1000" > page.json
    python verify_statements.py --key statement.pub page.json
    python verify_statements.py --key statement.pub --minute 1764350100000 --ids mine.txt page.json

A file is an answer of the API (newest first), or has one statement on each line (oldest first).
Several files are read as one chain, in the given order. The program prints the signed facts of each
minute and exits with 0, or prints one sentence about the error and exits with 1.
docs/statements.md describes the fields.
"""

import argparse
import base64
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# The DER prefix of the 32 bytes of an ed25519 key (RFC 8410).
_DER = bytes.fromhex("302a300506032b6570032100")
_HASH, _STREAM = re.compile(r"[0-9a-f]{64}"), re.compile(r"[a-z0-9][a-z0-9._-]*")
_NO_PREVIOUS = "0" * 64
_LEAF_IDS = 64
_COUNTS = {"stream", "minute_ms", "revision", "acked", "id_count", "root", "destinations"}
_FIELDS = {*_COUNTS, "issued_at_ms", "previous"}
# Fields that older statements lack, or that are omitted when empty.
_MORE_FIELDS = {"derived", "compared"}
_LINE, _MORE_LINE = {"delivered", "waiting", "dead", "lost"}, {"due", "not_passed"}

Json = Mapping[str, Any]


class Untrue(Exception):  # noqa: N818 - the statement is wrong, not this program
    """The fault of a statement, as a sentence."""


def main(argv: Sequence[str] | None = None) -> int:
    asked = argparse.ArgumentParser(description="Check a chain of Hifi's signed statements.")
    asked.add_argument("--key", type=Path, required=True, help="the public key, raw, in hex")
    asked.add_argument("--minute", type=int, help="the minute of the ids, in ms")
    asked.add_argument("--ids", type=Path, help="your ids of that minute, one on each line")
    asked.add_argument("--previous", help="the digest of the last statement that you checked")
    asked.add_argument("files", type=Path, nargs="+")
    options = asked.parse_args(argv)
    try:
        chain = [each for path in options.files for each in read(path)]
        minutes = check(chain, key=options.key.read_text().strip(), previous=options.previous)
        if options.ids is not None:
            check_ids(minutes, options.minute, options.ids.read_text().split("\n"))
    except Untrue as problem:
        print(problem)
        return 1
    for statement in minutes.values():
        print(in_words(statement))
    return 0


def read(path: Path) -> list[Json]:
    """Return the statements of a file, oldest first."""
    text = path.read_text()
    try:
        if text.lstrip().startswith('{"statements"'):
            return list(reversed(json.loads(text, object_pairs_hook=_once)["statements"]))
        return [
            json.loads(line, object_pairs_hook=_once) for line in text.split("\n") if line.strip()
        ]
    except ValueError as error:
        raise Untrue(f"{path} is not JSON: {error}") from error


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that occurs twice: other readers might use the other value."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise Untrue(f"The name {name!r} occurs twice in one object.")
        fields[name] = value
    return fields


def check(chain: Sequence[Json], *, key: str, previous: str | None = None) -> dict[int, Json]:
    """Return the newest statement about each minute; raise Untrue if the chain has a fault."""
    if not _HASH.fullmatch(key):
        raise Untrue("The public key is not 32 bytes in hex.")
    if not chain:
        raise Untrue("There is no statement.")
    newest: dict[int, Json] = {}
    before, stream = previous, None
    for number, signed in enumerate(chain, start=1):
        at = f"Statement {number}"
        statement = _well_formed(at, signed)
        if signed["public_key"] != key:
            raise Untrue(f"{at} names another public key than the one you trust.")
        whole = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        if not is_signed(whole.encode(), signed["signature"], key):
            raise Untrue(f"{at} is not signed with that public key, or was changed later.")
        stream = stream or statement["stream"]
        if statement["stream"] != stream:
            raise Untrue(f"{at} is about {statement['stream']}, but earlier ones about {stream}.")
        _follows(at, statement, before, newest.get(statement["minute_ms"]), is_first=number == 1)
        _adds_up(at, statement)
        newest[statement["minute_ms"]] = statement
        before = hashlib.sha256(whole.encode()).hexdigest()
    return newest


def _well_formed(at: str, signed: Any) -> Json:
    if not isinstance(signed, dict) or signed.keys() != {"statement", "public_key", "signature"}:
        raise Untrue(f"{at} is not a statement with its public key and signature.")
    statement = signed["statement"]
    if not isinstance(statement, dict) or not _FIELDS <= statement.keys() <= _FIELDS | _MORE_FIELDS:
        raise Untrue(f"{at} does not have the fields of a statement.")
    for name in ("revision", "acked", "id_count", "issued_at_ms", "derived", "compared"):
        if not _is_count(statement.get(name, 0)):
            raise Untrue(f"{at}: {name} is not a count.")
    if not all(isinstance(statement[name], str) for name in ("stream", "root", "previous")):
        raise Untrue(f"{at}: stream, root or previous is not a text.")
    if not _STREAM.fullmatch(statement["stream"]):
        raise Untrue(f"{at}: {statement['stream']!r} is not a stream name.")
    if not (_HASH.fullmatch(statement["root"]) and _HASH.fullmatch(statement["previous"])):
        raise Untrue(f"{at}: root or previous is not a SHA-256 in hex.")
    minute_ms = statement["minute_ms"]
    if type(minute_ms) is not int or (minute_ms != -1 and (minute_ms < 0 or minute_ms % 60_000)):
        raise Untrue(f"{at}: {minute_ms!r} is not a minute.")
    if not isinstance(statement["destinations"], dict):
        raise Untrue(f"{at} has no lines for destinations.")
    return statement


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _follows(at: str, said: Json, before: str | None, last: Json | None, *, is_first: bool) -> None:
    """Check its place in the chain, after the last statement on its minute."""
    if before is not None and said["previous"] != before:
        raise Untrue(f"{at} does not name the one before it: a statement was removed or replaced.")
    if said["previous"] == _NO_PREVIOUS and not is_first:
        raise Untrue(f"{at} claims to be the first of its stream.")
    begins = before is None and said["previous"] == _NO_PREVIOUS
    if last is None and said["revision"] != 1 and begins:
        raise Untrue(f"{at} is the first of its stream, but its revision is not 1.")
    if last is None:
        return
    if said["revision"] != last["revision"] + 1:
        raise Untrue(f"{at} is revision {said['revision']}, after {last['revision']}.")
    if said["acked"] + said.get("derived", 0) < last["acked"] + last.get("derived", 0):
        raise Untrue(f"{at} has fewer events than the previous revision.")


def _adds_up(at: str, said: Json) -> None:
    count = said["acked"] + said.get("derived", 0)
    if said["revision"] < 1:
        raise Untrue(f"{at} has no revision.")
    if said["id_count"] > count or bool(said["id_count"]) != bool(count):
        raise Untrue(f"{at} has {said['id_count']} ids for {count} events.")
    if said.get("compared", 0) > count:
        raise Untrue(f"{at} says that {said['compared']} of {count} events were compared.")
    for name, line in said["destinations"].items():
        _line_adds_up(f"{at}: {name}", line, count)


def _line_adds_up(at: str, line: Any, count: int) -> None:
    if not isinstance(line, dict) or not _LINE <= line.keys() <= _LINE | _MORE_LINE:
        raise Untrue(f"{at} does not have the fields of a line.")
    parts = [line["delivered"], line["waiting"], line["dead"]]
    more = [line["lost"], line.get("not_passed", {})]
    if not all(isinstance(each, dict) for each in more) or not all(
        map(_is_count, [*parts, line.get("due", 0), *more[0].values(), *more[1].values()])
    ):
        raise Untrue(f"{at} has a value that is not a count.")
    total = sum(parts) + sum(more[0].values())
    if total != line.get("due", total):
        raise Untrue(f"{at} was due {line['due']} events, but {total} are listed.")
    if total > count:
        raise Untrue(f"{at} was due {total} events, but there were {count}.")
    if sum(more[1].values()) > line["delivered"]:
        raise Untrue(f"{at} has more events in not_passed than delivered.")


def is_signed(message: bytes, signature: Any, key: str) -> bool:
    """Return whether `openssl` accepts the signature."""
    try:
        raw = base64.b64decode(signature, validate=True)
    except (TypeError, ValueError):
        return False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, content in (
            ("key", _DER + bytes.fromhex(key)), ("message", message), ("signature", raw),
        ):  # fmt: skip
            (folder / file).write_bytes(content)
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", "key"]
        command += ["-rawin", "-in", "message", "-sigfile", "signature"]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 0


def check_ids(minutes: Mapping[int, Json], minute_ms: int | None, lines: Iterable[str]) -> None:
    """Raise Untrue unless these are exactly the ids that were signed for a minute."""
    signed = minutes.get(-2 if minute_ms is None else minute_ms)
    if signed is None:
        raise Untrue("There is no statement about that minute.")
    ids = {line.rstrip("\r") for line in lines if line.strip()}
    if len(ids) != signed["id_count"]:
        raise Untrue(f"The list has {len(ids)} ids, but {signed['id_count']} were signed.")
    if root_of(ids) != signed["root"]:
        raise Untrue("The list has as many ids as were signed, but they differ.")


def root_of(ids: Iterable[str]) -> str:
    """Return the Merkle root (RFC 9162, 2.1.1); a leaf has 64 ids, with backslashes doubled."""
    lines = [each.replace("\\", "\\\\") for each in sorted(ids)]
    blocks = ["\n".join(lines[at : at + _LEAF_IDS]) for at in range(0, len(lines), _LEAF_IDS)]
    level = [hashlib.sha256(b"\0" + block.encode()).digest() for block in blocks]
    if not level:
        return hashlib.sha256().hexdigest()
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        rest = level[len(level) & ~1 :]
        level = [hashlib.sha256(b"\1" + left + right).digest() for left, right in pairs] + rest
    return level[0].hex()


def in_words(said: Json) -> str:
    at_ms, count = said["minute_ms"], said["acked"] + said.get("derived", 0)
    at = "wild times" if at_ms < 0 else datetime.fromtimestamp(at_ms / 1000, UTC)
    lines = [f"{said['stream']} {at}: {count} events, {said.get('compared', 0)} compared"]
    for name, line in said["destinations"].items():
        parts = [part for part in ("due", "delivered", "waiting", "dead") if part in line]
        counts = [f"{line[part]} {part}" for part in parts]
        counts += [f"{lost} lost at {stage}" for stage, lost in line["lost"].items()]
        lines.append(f"{name}: {', '.join(counts)}")
    return "; ".join(lines)


if __name__ == "__main__":
    sys.exit(main())
