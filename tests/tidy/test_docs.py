"""Documents tell the truth about the code: their files exist, and their links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.event.rights import table
from tests.tidy import sources
from tests.tidy.signposts import Signposts
from tests.tidy.test_contracts import contracts

ADR = sources.ROOT / "docs" / "adr"
QUESTIONS = 12
LINK = re.compile(r"\]\(([^)\s]+)\)")


def documents() -> dict[str, str]:
    return {path: text for path, text in sources.tracked() if path.endswith(".md")}


def answers() -> list[tuple[str, str, str]]:
    """Return the rows of "Where is ...?": question, file, text to look for in it."""
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


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_and_every_name_in_parentheses_is_there(page: str) -> None:
    files = dict(sources.tracked())
    assert list(Signposts(files).wrong_in(files[page])) == []


def test_every_path_in_a_document_is_there() -> None:
    signposts = Signposts(dict(sources.tracked()))
    wrong = [
        f"{path}:{line}"
        for path, text in documents().items()
        # The changelog mentions files that are gone.
        if path != "CHANGELOG.md"
        for line in signposts.wrong_paths_in(text)
    ]
    assert wrong == []


FILES = {
    "a/one.py": "class One:\n    def first(self) -> None:\n        ...\n",
    "a/b/two.py": "def second(third: int) -> int:\n    return third\n",
    "a/c/two.py": "FOURTH = 4\n",
    "a/c/three.py": "",
    "shared/event/topics.py": 'ONE = "hifi.one"\n',
}
# A document, and its first fault, if it has one.
SIGNPOSTS = [
    ("`a/one.py` (`One`, `One.first`), `a/c/two.py`: `FOURTH`", None),
    ("`a/c/two.py`, and `three.py` beside it", None),
    ("- `a/b/two.py` (`second`)\n- `three.py`, the only one", None),
    ("| in `a/c` | |\n|---|---|\n| `two.py` | `hifi.one` |", None),
    ("in all `two.py` files", None),
    ("`a/b/`, and in it `a/b/NAME.py`", None),
    ("```\n`a/gone.py`\n```", None),
    ("`a/gone.py`", "1: a/gone.py is nowhere"),
    ("see\n\n`a/d/` and `x/gone.py`", "3: a/d/ is nowhere"),
    ("run `python a/gone.py`", "1: a/gone.py is nowhere"),
    ("`two.py`", "1: two.py is one of ['a/b/two.py', 'a/c/two.py']"),
    ("- `a/b/two.py`\n- `two.py`", "2: two.py is one of ['a/b/two.py', 'a/c/two.py']"),
    ("`a/one.py` (`Two`)", "1: a/one.py has no Two"),
    ("`a/one.py`: `One.second`", "1: a/one.py has no One.second"),
    ("`a/b/two.py` (`FOURTH`)", "1: a/b/two.py has no FOURTH"),
    ("`OneMore` does it", "1: OneMore is defined nowhere"),
    ("it goes (`away`)", "1: away is defined nowhere"),
    ("the topic `hifi.two`", "1: hifi.two is no topic"),
]


@pytest.mark.parametrize(("document", "wrong"), SIGNPOSTS)
def test_a_signpost_that_leads_nowhere_is_found(document: str, wrong: str | None) -> None:
    found = list(Signposts(FILES).wrong_in(document))
    assert found[:1] == ([] if wrong is None else [wrong])


def test_a_path_of_a_decision_that_leads_nowhere_is_found() -> None:
    document = "`two.py`, `a/c/`, `data/x.json`\n\n`a/b/gone.py`, `gone.py` and `a/d/`"
    assert list(Signposts(FILES).wrong_paths_in(document)) == [
        "3: a/b/gone.py is nowhere",
        "3: gone.py is nowhere",
        "3: a/d/ is nowhere",
    ]


def test_architecture_says_all_that_the_retrier_may_import() -> None:
    text = (sources.ROOT / "ARCHITECTURE.md").read_text()
    (said,) = (part for part in text.split("\n\n") if "the retrier delivers as" in part)
    allowed = contracts()["services"]["ignore_imports"]
    assert isinstance(allowed, list)
    modules = (line.partition(" -> ")[2].rpartition(".")[2] for line in allowed)
    assert {Path(path).stem for path in re.findall(r"`([^`]+\.py)`", said)} == set(modules)


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
    # Pages that are written at the same time get their numbers beforehand.
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
    """Return the name of a heading in a link."""
    if not line.startswith("#"):
        return ""
    words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
    return words.replace(" ", "-")


def test_rights_are_documented_as_they_are_granted() -> None:
    assert table() in (sources.ROOT / "docs" / "kafka.md").read_text()


# A command that posts events: up to the first line that no backslash continues.
_POSTS = re.compile(r"curl [^\n]*(?:\\\n[^\n]*)*")


def test_every_command_that_posts_events_names_their_content_type() -> None:
    """Without one the gateway answers 415, and a reader has copied the line."""
    commands = [
        (page, command)
        for page, text in documents().items()
        for command in _POSTS.findall(text)
        if re.search(r"/(events|beacon)['\" ?]", command + " ")
        and re.search(r" (-d|--data)", command)
    ]
    assert len(commands) > 3
    lacking = [
        f"{page}: {command}"
        for page, command in commands
        if not re.search(r"content-type: *application/", command, re.IGNORECASE)
    ]
    assert not lacking, "\n".join(lacking)
