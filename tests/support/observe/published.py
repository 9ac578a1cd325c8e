"""Statements as a reader elsewhere sees them."""

from collections.abc import Iterable

from deploy.cli.events.proofs import Proof
from shared.proof.statement import SignedStatement


def proof_of(signed: SignedStatement) -> Proof:
    return Proof.from_json(signed.to_json())


def proofs_of(statements: Iterable[SignedStatement]) -> list[Proof]:
    return [proof_of(signed) for signed in statements]
