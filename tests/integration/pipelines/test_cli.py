"""`hifi pipelines check`, as a person types it: its output, and its exit."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deploy.cli.control.pipeline_check import checked
from deploy.cli.control.pipeline_files import read_document
from shared.runtime.setup_error import UsageError
from tests.support.deploy.cli_runs import Run

pytestmark = pytest.mark.integration

SALES = """\
name: sales
from: {stream: tried}
schema: "type STRING, price DOUBLE, tags ARRAY<STRING>"
steps:
  - where: type = 'sale'
  - explode: {tag: tags}
  - select: {tag: tag, gross: price * 2}
  - key: tag
to:
  - {stream: cheap, when: gross < 10}
  - {stream: dear}
match: first
tests:
  - given: [{type: sale, price: 1, tags: [a, b]}]
    expect: {cheap: [{tag: a, gross: 2}, {tag: b, gross: 2}]}
"""


@pytest.fixture
def hifi(tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str, document: str = SALES) -> tuple[int, str, str]:
        file = tmp_path / "sales.yaml"
        file.write_text(document)
        env = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        ran = Run("pipelines", arguments[0], str(file), *arguments[1:], folder=tmp_path, env=env)
        code = ran.wait()
        return code, ran.out, ran.err.replace(str(tmp_path) + "/", "")

    return run


def test_check_shows_what_each_step_makes(hifi: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = hifi("check")
    assert code == 0, err
    assert out.splitlines() == [
        "where    type = 'sale'",
        "explode  tag string  of tags",
        "select   tag string, gross double",
        "key      tag",
        "to       cheap when gross < 10, else dear",
        "sales is valid. 1 test passed.",
    ]


def test_a_test_that_comes_otherwise_is_told_and_nothing_else(
    hifi: Callable[..., tuple[int, str, str]],
) -> None:
    code, _, err = hifi("check", document=SALES.replace("gross: 2}]}", "gross: 3}]}"))
    assert code == 2
    assert "hifi: sales.yaml:14: tests.0: results are not as expected:\n" in err
    # The command's Spark worker ends without output.
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "price * 2",
            "prise * 2",
            "sales.yaml:7: steps.2.select.gross: there is no column",
        ),
        (
            "type = 'sale'",
            "rand() < 0.5",
            "sales.yaml:5: steps.0.where: the function 'rand'",
        ),
        ("price DOUBLE", "price DUBEL", "sales.yaml:3: schema: it cannot be read"),
        ("- key: tag", "- merge: tag", "sales.yaml:8: steps.3: there is no step 'merge'"),
    ],
)
def test_check_tells_what_is_wrong_in_which_line(
    locked_spark: SparkSession, tmp_path: Path, right: str, wrong: str, said: str
) -> None:
    file = tmp_path / "sales.yaml"
    file.write_text(SALES.replace(right, wrong))

    def check() -> None:
        document = read_document(file)
        checked(locked_spark, document, document.pipeline())

    with pytest.raises(UsageError) as raised:
        check()
    assert str(raised.value).startswith(f"{tmp_path}/{said}")
