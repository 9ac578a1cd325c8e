"""The example verifier accepts statement chains as Hifi makes them, and rejects forged ones."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from observe.audit.signing import Signer
from shared.proof.merkle import merkle_root
from shared.proof.statement import NO_PREVIOUS, Counts, SignedStatement, Statement
from tests.tidy import sources

VERIFIER = sources.ROOT / "examples" / "python" / "verify_statements.py"
M0 = 1_699_999_980_000
KEY = "11" * 32
IDS = [f"id-{nth}" for nth in range(150)]
Json = dict[str, Any]
Forge = Callable[["Forger"], object]


def a_counts(due: int, **more: Any) -> Counts:
    return Counts(delivered=due, waiting=0, dead=0, lost={}, due=due, **more)


class Forger:
    """A chain of four statements about three minutes, and the key that signed them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.signer = Signer(folder / "observe", key=KEY)
        self.chain: list[Json] = []
        self.trusted = self.signer.public_key
        lost = Counts(delivered=100, waiting=20, dead=9, lost={"gateway": 1}, due=130)
        some = a_counts(40, not_passed={"filtered": 30})
        self.state(M0, 1, {"shop": a_counts(150)}, compared=150)
        self.state(M0 + 60_000, 1, {"shop": lost, "pipeline:p": some}, acked=130, compared=130)
        self.state(-1, 1, {}, ids=IDS[:3], acked=2, derived=1)
        self.state(M0, 2, {"shop": a_counts(150), "new": a_counts(150)}, compared=150)

    def state(
        self, minute_ms: int, revision: int, lines: dict[str, Counts], *, ids: Sequence[str] = IDS,
        acked: int | None = None, **more: Any,
    ) -> None:  # fmt: skip
        count = len(ids) if acked is None else acked
        said = Statement(
            stream="orders", minute_ms=minute_ms, revision=revision, acked=count,
            id_count=min(len(ids), count + more.get("derived", 0)), root=merkle_root(ids).hex(),
            destinations=lines, issued_at_ms=M0, previous=NO_PREVIOUS, **more,
        )  # fmt: skip
        self.add(said)

    def add(self, said: Statement) -> None:
        if self.chain:
            said = _with(said, previous=_digest(self.chain[-1]))
        self.chain.append(json.loads(self.signer.sign(said).to_json()))

    def sign_again(self, at: int, change: Callable[[Json], object]) -> None:
        """Change a statement, and sign it and all later ones again, as the key's owner can."""
        change(self.chain[at]["statement"])
        for nth in range(at, len(self.chain)):
            if nth > at:
                self.chain[nth]["statement"]["previous"] = _digest(self.chain[nth - 1])
            self._sign(nth)

    def _sign(self, nth: int) -> None:
        raw = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(KEY)).sign(_bytes(self.chain[nth]))
        signed = SignedStatement(_A_STATEMENT, self.signer.public_key, raw)
        self.chain[nth]["signature"] = json.loads(signed.to_json())["signature"]

    def verdict(self, *arguments: str, text: str | None = None) -> tuple[int, str]:
        key, chain = self.folder / "key", self.folder / "chain"
        key.write_text(self.trusted + "\n")
        lines = "\n".join(json.dumps(each) for each in self.chain)
        chain.write_text(lines if text is None else text)
        command = [sys.executable, str(VERIFIER), "--key", str(key), *arguments, str(chain)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert not ended.stderr, ended.stderr
        return ended.returncode, ended.stdout


def _bytes(signed: Json) -> bytes:
    return json.dumps(signed["statement"], sort_keys=True, separators=(",", ":")).encode()


def _digest(signed: Json) -> str:
    return hashlib.sha256(_bytes(signed)).hexdigest()


def _with(said: Statement, **more: Any) -> Statement:
    return Statement(**{**{name: getattr(said, name) for name in said.__struct_fields__}, **more})


_A_STATEMENT = Statement("orders", M0, 1, 0, 0, "", {}, 0, NO_PREVIOUS)


def test_a_chain_that_hifi_made_is_believed_also_in_parts_and_with_its_ids(tmp_path: Path) -> None:
    good = Forger(tmp_path)
    code, told = good.verdict()
    assert (code, len(told.splitlines())) == (0, 3)
    assert "orders wild times: 3 events" in told
    assert "new: 150 due, 150 delivered, 0 waiting, 0 dead" in told
    assert "1 lost at gateway" in told
    ids = tmp_path / "ids"
    ids.write_text("\n".join(IDS))
    of_ids = ["--minute", str(M0), "--ids", str(ids)]
    assert good.verdict(*of_ids)[0] == 0
    # The form of the API's answer.
    page = json.dumps({"statements": good.chain[::-1], "older": None, "is_complete": True})
    assert good.verdict(*of_ids, text=page)[0] == 0
    # `--previous` continues the chain of an earlier check.
    before = _digest(good.chain[1])
    good.chain = good.chain[2:]
    assert good.verdict("--previous", before)[0] == 0
    assert "does not name the one before" in good.verdict("--previous", "00" * 32)[1]


def test_statements_of_old_say_less_and_are_believed(tmp_path: Path) -> None:
    old = Forger(tmp_path)
    old.chain.clear()
    old.state(M0, 1, {"shop": Counts(delivered=100, waiting=20, dead=9, lost={})})
    assert old.verdict()[0] == 0


def line(name: str, **more: Any) -> Forge:
    return lambda it: it.sign_again(1, lambda said: said["destinations"][name].update(more))


def said(at: int, **more: Any) -> Forge:
    return lambda it: it.sign_again(at, lambda one: one.update(more))


def unsigned(at: int, **more: Any) -> Forge:
    return lambda it: it.chain[at]["statement"].update(more)


def swapped(it: Forger) -> None:
    it.chain[1], it.chain[2] = it.chain[2], it.chain[1]


def other_key(it: Forger) -> None:
    it.signer = Signer(it.folder / "other")
    it.chain.pop()
    it.state(M0, 2, {"shop": a_counts(150)})
    it.chain[-1]["public_key"] = it.trusted


def own_key(it: Forger) -> None:
    it.signer = Signer(it.folder / "other")
    it.chain.pop()
    it.state(M0, 2, {"shop": a_counts(150)})


def signature(text: Any) -> Forge:
    return lambda it: it.chain[2].update(signature=text)


# Each forgery, and a part of the verdict on it.
FORGED: dict[str, tuple[Forge, str]] = {
    "a count is changed": (unsigned(0, acked=149), "was changed later"),
    "a root is changed": (unsigned(1, root="ab" * 32), "was changed later"),
    "a line is removed": (
        lambda it: it.chain[1]["statement"]["destinations"].pop("shop"),
        "was changed later",
    ),
    "a loss is hidden": (
        lambda it: it.chain[1]["statement"]["destinations"]["shop"].update(lost={}, delivered=101),
        "was changed later",
    ),
    "another key has signed": (other_key, "not signed with that public key"),
    "another key has signed, and is named": (own_key, "names another public key"),
    "the signature of another statement": (
        lambda it: it.chain[2].update(signature=it.chain[1]["signature"]),
        "not signed",
    ),
    "no signature": (signature(""), "not signed"),
    "a truncated signature": (
        lambda it: it.chain[2].update(signature=it.chain[2]["signature"][:-8]),
        "not signed",
    ),
    "a signature that is not base64": (signature("?"), "not signed"),
    "a signature that is not a text": (signature(7), "not signed"),
    "one is left out": (lambda it: it.chain.pop(1), "a statement was removed"),
    "two are exchanged": (swapped, "does not name the one before it"),
    "one is in it twice": (
        lambda it: it.chain.insert(1, it.chain[0]),
        "does not name the one before it",
    ),
    "a chain begins again": (said(3, previous=NO_PREVIOUS), "does not name the one before it"),
    "it begins with a revision": (said(0, revision=2), "its revision is not 1"),
    "a revision is left out": (said(3, revision=3), "is revision 3, after 1"),
    "a revision is repeated": (said(3, revision=1), "is revision 1, after 1"),
    "no revision": (said(2, revision=0), "has no revision"),
    "events are gone in a later revision": (
        said(3, acked=140, id_count=140, compared=140, destinations={}),
        "fewer events than the previous revision",
    ),
    "a line does not add up": (line("shop", delivered=101), "shop was due 130 events, but 131"),
    "less is counted than was due": (line("shop", waiting=0), "shop was due 130 events, but 110"),
    "more was due than there was": (line("shop", delivered=200, due=230), "but there were 130"),
    "a count below zero": (line("shop", delivered=140, waiting=-20), "is not a count"),
    "a loss below zero": (line("shop", lost={"gateway": -1}, delivered=102), "is not a count"),
    "a pipeline left out more than it had": (
        line("pipeline:p", not_passed={"filtered": 41}),
        "in not_passed than delivered",
    ),
    "more ids than events": (said(1, id_count=131), "131 ids for 130 events"),
    "more compared than there was": (said(0, compared=151), "that 151 of 150 events were compared"),
    "another stream's": (said(2, stream="others"), "is about others"),
    "a time within a minute": (said(2, minute_ms=M0 + 1), "is not a minute"),
    "a word more": (said(2, note="believe me"), "does not have the fields"),
    "a word less": (
        lambda it: it.sign_again(2, lambda one: one.pop("issued_at_ms")),
        "does not have the fields",
    ),
    "a number that is a text": (said(0, acked="150"), "acked is not a count"),
    "true for a number": (said(2, revision=True), "revision is not a count"),
    "no statements": (lambda it: it.chain.clear(), "There is no statement"),
    "a key that is none": (lambda it: setattr(it, "trusted", "k"), "is not 32 bytes"),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_was_forged_is_refused_and_says_what_is_wrong(name: str, tmp_path: Path) -> None:
    forge, sentence = FORGED[name]
    forged = Forger(tmp_path)
    forge(forged)
    code, told = forged.verdict()
    assert (code, told.count("\n")) == (1, 1), told
    assert sentence in told


def test_a_name_that_stands_twice_and_ids_that_were_not_signed_are_refused(tmp_path: Path) -> None:
    one = Forger(tmp_path)
    text = json.dumps(one.chain[0]).replace('"acked": 150', '"acked": 150, "acked": 151')
    assert "occurs twice" in one.verdict(text=text)[1]
    assert "is not JSON" in one.verdict(text="{")[1]
    ids = tmp_path / "ids"
    for mine, minute_ms, sentence in (
        (IDS[1:], M0, "The list has 149 ids, but 150 were signed"),
        ([*IDS[1:], "x"], M0, "but they differ"),
        (IDS, M0 + 120_000, "no statement about that minute"),
    ):
        ids.write_text("\n".join(mine))
        code, told = one.verdict("--minute", str(minute_ms), "--ids", str(ids))
        assert (code, sentence in told) == (1, True), told
