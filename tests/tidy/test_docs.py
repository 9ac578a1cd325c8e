"""Documents tell the truth about the code: their files exist, and their links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

from shared.event.rights import table
from tests.tidy import sources

ADR = sources.ROOT / "docs" / "adr"
QUESTIONS = 12
LINK = re.compile(r"\]\(([^)\s]+)\)")


def documents() -> dict[str, str]:
    return {path: text for path, text in sources.tracked() if path.endswith(".md")}


def answers() -> list[tuple[str, str, str]]:
    """The rows of "Where is ...?": question, file, what to look for in it."""
    section = (sources.ROOT / "CONTRIBUTING.md").read_text().split("## Where is ...?")[1]
    return re.findall(
        r"^\| (.+\?) \| `(.+)` \| `(.+)` \|$", section.split("\n## ")[0], re.MULTILINE
    )


def test_each_question_is_answered_by_the_file_that_is_named() -> None:
    rows = answers()
    assert len({question for question, _, _ in rows}) == QUESTIONS
    missing = [
        f"CONTRIBUTING.md: {question} {path} has no {words!r}"
        for question, path, words in rows
        if not (sources.ROOT / path).is_file() or words not in (sources.ROOT / path).read_text()
    ]
    assert missing == []


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = [
        f"{path}: {target}"
        for path, text in documents().items()
        for target in LINK.findall(text)
        if not _leads_somewhere(path, target)
    ]
    assert broken == []


def test_decisions_are_in_order_and_each_has_its_row() -> None:
    rows = re.findall(r"^\| (?:\*\*)?\[?(\d{4})", (ADR / "README.md").read_text(), re.MULTILINE)
    # Those that are written at the same time get their numbers beforehand.
    assert rows == sorted(set(rows))
    index = (ADR / "README.md").read_text()
    assert [page.name for page in _decisions() if f"]({page.name})" not in index] == []


def test_every_decision_begins_with_its_number_its_title_and_its_date() -> None:
    other = [
        page.name
        for page in _decisions()
        if not re.match(
            rf"# (0*{int(page.name[:4])}\.?|{page.name[:4]}) \S.*\n\n\d{{4}}-\d\d-\d\d, ",
            page.read_text(),
        )
    ]
    assert other == []


def test_what_changes_a_decision_is_said_on_both_pages() -> None:
    one_sided = [
        f"{page.name} speaks of {other}, which does not speak of it"
        for page in _decisions()
        for other in LINK.findall(page.read_text().split("\n\n")[1])
        if page.name not in (ADR / other).read_text()
    ]
    assert one_sided == []


def _decisions() -> Iterator[Path]:
    return iter(sorted(ADR.glob("[0-9]*.md")))


def _leads_somewhere(path: str, target: str) -> bool:
    if re.match(r"https?:|mailto:", target):
        return True
    file, _, heading = target.partition("#")
    page = (sources.ROOT / path).parent / file if file else sources.ROOT / path
    if not page.exists():
        return False
    return not heading or heading in {_anchor(line) for line in page.read_text().splitlines()}


def _anchor(line: str) -> str:
    """The name of a heading in a link."""
    if not line.startswith("#"):
        return ""
    words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
    return words.replace(" ", "-")


def test_rights_are_documented_as_they_are_granted() -> None:
    assert table() in (sources.ROOT / "docs" / "kafka.md").read_text()
