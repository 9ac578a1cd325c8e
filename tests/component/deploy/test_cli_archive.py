"""`hifi archive verify` names missing and changed events, and `hifi restore` counts first."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from typer.testing import CliRunner, Result

from deploy.cli.archive import verify as verify_module
from deploy.cli.commands import app
from deploy.cli.events.verify import minute_text
from deploy.local.stores import reseal
from observe.audit.signing import Signer
from shared.event.times import minute_of, rfc3339
from shared.proof.archived import ArchivedObject
from shared.proof.merkle import merkle_root
from shared.proof.statement import NO_PREVIOUS, SignedStatement, Statement
from shared.runtime.archive.stores import read_stores
from shared.runtime.control_client import ControlClient
from shared.runtime.secret_box import SecretBox, new_key
from tests.support.observe.published import proof_of
from tests.support.pipelines.archive_made import ARCHIVE, AT_MS, RANGES, kept, row, sink_of

_PAGE = Path(__file__).parents[3] / "docs" / "archive.md"
# The offsets in each of two Kafka partitions.
OFFSETS = (10, 11)
_IDS = {f"{partition}-{offset}" for partition in range(2) for offset in OFFSETS}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ArchivedObject]:
    """Fill a store with objects, and sign statements about their events."""
    folder = tmp_path / "kept"
    (tmp_path / "stores.toml").write_text(f'[here]\nurl = "file://{folder}"\n')
    (tmp_path / "store-folders").write_text(str(folder))
    rows = [row(partition, offset) for partition in range(2) for offset in OFFSETS]
    objects = kept(sink_of(folder), *rows)
    ids = {each["event_id"] for each in rows}
    assert ids == _IDS
    signed = _signed(tmp_path / "observe", ids)

    monkeypatch.setattr(verify_module, "statements_of", lambda *_: [proof_of(signed)])
    monkeypatch.setattr(verify_module, "ids_of", lambda *_: frozenset(ids))
    monkeypatch.setattr(verify_module, "pipeline_made_ms", lambda *_: AT_MS)
    return objects


def _signed(folder: Path, ids: set[str], *, at_ms: int = AT_MS - OFFSETS[0]) -> SignedStatement:
    return Signer(folder).sign(
        Statement(
            stream="orders",
            minute_ms=minute_of(at_ms),
            revision=1,
            acked=len(ids),
            id_count=len(ids),
            root=merkle_root(ids).hex(),
            destinations={},
            issued_at_ms=AT_MS,
            previous=NO_PREVIOUS,
        )
    )


def hifi(tmp_path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--stream", "orders", "--data", str(tmp_path)])


def _flip(folder: Path, objects: list[ArchivedObject]) -> list[str]:
    path = folder / objects[0].path
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    return [f"changed: {objects[0].path}", "  missing 0-10", "  missing 0-11"]


def _remove(folder: Path, objects: list[ArchivedObject]) -> list[str]:
    (folder / objects[1].path).unlink()
    return [f"missing: {objects[1].path}", "  missing 1-10", "  missing 1-11"]


def _swap(folder: Path, objects: list[ArchivedObject]) -> list[str]:
    one, other = (folder / each.path for each in objects)
    kept_aside = one.with_suffix(".aside")
    shutil.move(one, kept_aside)
    shutil.move(other, one)
    shutil.move(kept_aside, other)
    return [f"changed: {each.path}" for each in objects] + ["  missing 0-10", "  missing 1-11"]


def _remove_all_of_it(folder: Path, objects: list[ArchivedObject]) -> list[str]:
    (folder / objects[1].path).unlink()
    (folder / objects[1].manifest_path).unlink()
    return ["  missing 1-10", "  missing 1-11"]


def test_what_is_as_it_was_is_complete(tmp_path: Path, archive: list[ArchivedObject]) -> None:
    assert len(archive) == 2
    ended = hifi(tmp_path, "archive", "verify")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("complete\n")
    # The docs show this output.
    shown = "complete\nSince 2026-11-24T06:00Z: 3 objects, 1 signed minute, 3 events.\n"
    assert f"$ hifi archive verify --stream orders\n{shown}" in _PAGE.read_text()
    since = minute_text(AT_MS - max(OFFSETS))
    told = f"complete Since {since}: 2 objects, 1 signed minute, 4 events."
    assert " ".join(ended.output.split()) == told


def test_what_was_signed_since_the_pipeline_was_made_must_be_there(
    tmp_path: Path, archive: list[ArchivedObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive
    earlier_ms = AT_MS - 600_000
    chain = [
        _signed(tmp_path / "observe", {"gone"}, at_ms=earlier_ms),
        _signed(tmp_path / "observe", _IDS),
    ]
    monkeypatch.setattr(verify_module, "statements_of", lambda *_: [proof_of(it) for it in chain])
    monkeypatch.setattr(verify_module, "broken_link", lambda _: None)
    monkeypatch.setattr(verify_module, "pipeline_made_ms", lambda *_: None)
    ended = hifi(tmp_path, "archive", "verify")
    assert ended.exit_code == 0
    assert "no record of when the archive's pipeline was created" in " ".join(ended.output.split())
    monkeypatch.setattr(verify_module, "pipeline_made_ms", lambda *_: earlier_ms - 1_000)
    ended = hifi(tmp_path, "archive", "verify")
    assert ended.exit_code == 3
    assert f"{minute_text(earlier_ms)}: 0 of 1 ids" in ended.stdout
    assert f"Since {minute_text(earlier_ms - 1_000)}: 2 objects, 2 signed" in ended.output
    # An explicit `--from` decides where the check begins.
    since = minute_text(AT_MS - 300_000)
    assert hifi(tmp_path, "archive", "verify", "--from", since).exit_code == 0


def test_a_pipeline_was_made_when_it_was_made_first() -> None:
    class Changes(ControlClient):
        def call(self, *path: str, **sent: Any) -> Any:
            assert path == ("GET", "changes")
            assert sent["query"]["name"] == ARCHIVE.name
            tenants = ((5, "default"), (7, "default"), (3, "others"))
            return {"changes": [{"at_ms": at_ms, "tenant": whose} for at_ms, whose in tenants]}

    assert verify_module.pipeline_made_ms(Changes("http://127.0.0.1:1", None), ARCHIVE) == 5


def _miscount(folder: Path, said: ArchivedObject) -> list[str]:
    manifest = folder / said.manifest_path
    manifest.write_bytes(structs.replace(said, count=said.count + 1).to_json())
    return [f"changed: {said.manifest_path}", "(it says 3 events instead of 2)"]


def _remove_manifest(folder: Path, said: ArchivedObject) -> list[str]:
    (folder / said.manifest_path).unlink()
    return [f"missing: {said.manifest_path}", "(its object exists)"]


@pytest.mark.parametrize("harm", [_miscount, _remove_manifest])
def test_harm_to_what_stands_beside_an_object_is_named_and_stops_a_restore(
    tmp_path: Path, archive: list[ArchivedObject], harm: Callable[[Path, ArchivedObject], list[str]]
) -> None:
    expected = harm(tmp_path / "kept", archive[1])
    ended = hifi(tmp_path, "archive", "verify")
    assert ended.exit_code == 3, ended.output
    for each in expected:
        assert each in " ".join(ended.stdout.split())
    # To count a part of an object, a restore reads the object.
    since = minute_text(AT_MS) if harm is _remove_manifest else rfc3339(AT_MS + OFFSETS[1])
    refused = str(hifi(tmp_path, "restore", "--dry-run", "--from", since).exception)
    assert refused.startswith(archive[1].manifest_path)


def test_a_restore_says_what_is_missing_in_between_and_before(
    tmp_path: Path, archive: list[ArchivedObject]
) -> None:
    assert archive
    folder = tmp_path / "kept"
    for first in (40, 50):
        (where, _) = RANGES
        later = kept(sink_of(folder), row(0, first), ranges={where: (first, first + 10)})
        if first == 40:
            gone = later[0]
    (folder / gone.path).unlink()
    (folder / gone.manifest_path).unlink()
    ended = hifi(tmp_path, "restore", "--dry-run")
    told = " ".join(ended.output.split())
    assert ended.exit_code == 3, told
    span = f"from {minute_text(AT_MS + 10)} to {minute_text(AT_MS + 50)}"
    assert f"5 events of orders in 3 objects, {span};" in told
    assert "No object covers offsets 40-50 of Kafka partition 0." in told
    begins = "10 of Kafka partition 0, 10 of Kafka partition 1"
    assert f"no event before offset {begins}." in told


@pytest.mark.parametrize("harm", [_flip, _remove, _swap, _remove_all_of_it])
def test_each_harm_is_named_with_its_object_and_its_ids(
    tmp_path: Path,
    archive: list[ArchivedObject],
    harm: Callable[[Path, list[ArchivedObject]], list[str]],
) -> None:
    expected = harm(tmp_path / "kept", archive)
    ended = hifi(tmp_path, "archive", "verify")
    assert ended.exit_code == 3, ended.output
    lines = ended.stdout.replace("\n", " ").split()
    for line in expected:
        assert line.split()[-1] in lines, ended.stdout


def test_a_restore_counts_first_and_refuses_what_is_damaged(
    tmp_path: Path, archive: list[ArchivedObject]
) -> None:
    ended = hifi(tmp_path, "restore", "--dry-run")
    assert ended.exit_code == 0, ended.output
    assert "4 events of orders in 2 objects" in " ".join(ended.output.split())
    (tmp_path / "kept" / archive[0].manifest_path).write_text("{}")
    refused = str(hifi(tmp_path, "restore", "--dry-run").exception)
    assert refused.startswith(f"{archive[0].manifest_path} is unreadable: `hifi archive verify`")


def test_a_statement_of_somebody_else_is_not_trusted(
    tmp_path: Path, archive: list[ArchivedObject]
) -> None:
    assert archive
    other = tmp_path / "other"
    Signer(other)
    ended = hifi(tmp_path, "archive", "verify", "--public-key", str(other / "statement.pub"))
    assert ended.exit_code == 4


def test_stores_and_archives_that_are_not_there_are_told(
    tmp_path: Path, archive: list[ArchivedObject]
) -> None:
    assert archive
    wrong = hifi(tmp_path, "restore", "--dry-run", "--store", "elsewhere")
    assert "the stores are: here" in str(wrong.exception)
    wrong = hifi(tmp_path, "restore", "--dry-run", "--archive", "none-such")
    assert "here has: kept" in str(wrong.exception)


def test_a_secret_is_sealed_for_its_store_alone(tmp_path: Path) -> None:
    keys = new_key()
    ended = CliRunner().invoke(
        app,
        ["archive", "seal", "backup", "--secret-keys", keys, "--data", str(tmp_path)],
        input="hush\n",
    )
    assert ended.exit_code == 0, ended.output
    sealed = ended.stdout.strip().splitlines()[-1]
    assert SecretBox.of(keys).unseal(sealed, owner="store:backup") == "hush"
    assert "hush" not in ended.output


def test_secrets_of_stores_are_sealed_anew_and_all_else_of_their_file_stays(tmp_path: Path) -> None:
    old, new = new_key(), new_key()
    sealed = SecretBox.of(old).seal("hush", owner="store:backup")
    lost = SecretBox.of(new_key()).seal("gone", owner="store:lost")
    lines = '# Ours.\n[{name}]\nurl = "s3://b/{name}"\nsecret_key = "{sealed}" # mine\n'
    path = tmp_path / "stores.toml"
    both = lines.format(name="backup", sealed=sealed) + lines.format(name="lost", sealed=lost)
    path.write_text(both)
    path.chmod(0o600)
    assert reseal(path, SecretBox.of(f"{new},{old}")) == (1, 0, ["store:lost"])
    now = read_stores(path)["backup"].secret_key
    assert now is not None
    assert SecretBox.of(new).unseal(now, owner="store:backup") == "hush"
    assert path.read_text() == both.replace(sealed, now)
    assert path.stat().st_mode & 0o777 == 0o600
    assert reseal(path, SecretBox.of(new)) == (0, 1, ["store:lost"])


def test_each_life_of_a_stream_is_named_and_restored_by_itself(
    tmp_path: Path, archive: list[ArchivedObject]
) -> None:
    assert archive
    folder = tmp_path / "kept"
    later = {"time_ms": AT_MS + 90_000_000}
    anew = dict.fromkeys(RANGES, (0, 2))
    newest = kept(sink_of(folder, life="new"), row(0, 0) | later, row(0, 1) | later, ranges=anew)
    assert sum(each.count for each in newest) == 2
    told = " ".join(hifi(tmp_path, "restore", "--dry-run").output.split())
    assert "2 events of orders in 1 object, " in told
    assert "belong to the newest life, new; --life selects another: unnamed." in told
    told = hifi(tmp_path, "restore", "--dry-run", "--life", "unnamed").output
    assert "4 events of orders in 2 objects, " in told
    wrong = hifi(tmp_path, "restore", "--dry-run", "--life", "none-such")
    assert "its lives are: unnamed, new" in str(wrong.exception)
    shown = hifi(tmp_path, "archive", "verify", "--life", "unnamed").output
    assert "complete" in shown
    assert "Life" not in shown


def test_what_was_kept_before_lives_had_names_is_of_the_one_that_goes_on_there(
    tmp_path: Path, archive: list[ArchivedObject]
) -> None:
    assert archive
    on = {where: (end, end + 20) for where, (_, end) in RANGES.items()}
    kept(sink_of(tmp_path / "kept", life="same"), row(0, 45), row(1, 50), ranges=on)
    told = " ".join(hifi(tmp_path, "restore", "--dry-run").output.split())
    assert "6 events of orders in 4 objects, " in told
    assert "life" not in told


def test_verify_names_what_each_life_has(tmp_path: Path, archive: list[ArchivedObject]) -> None:
    assert archive
    folder = tmp_path / "kept"
    anew = dict.fromkeys(RANGES, (0, 2))
    much_later = {"time_ms": AT_MS + 90_000_000, "event_time_ms": AT_MS - 20_000_000}
    kept(sink_of(folder, life="new"), row(0, 0) | much_later, ranges=anew)
    ended = hifi(tmp_path, "archive", "verify")
    assert ended.exit_code == 0, ended.output
    told = " ".join(ended.output.split())
    assert "Life unnamed: 2 objects, 4 events, " in told
    assert "Life new: 1 object, 1 events, " in told
