"""Settings of all Spark sessions of Hifi."""

from pathlib import Path

import pytest

from shared.runtime.spark.session import SparkSettings, _options


@pytest.mark.parametrize(("heap_mb", "task_places"), [(1024, 32), (512, 32), (1024, 4), (512, 500)])
def test_arrow_batches_of_all_places_fit_into_a_quarter_of_the_heap(
    heap_mb: int, task_places: int
) -> None:
    """Spark's default of 64 MiB for each of 32 places would be twice the direct memory."""
    settings = SparkSettings(
        "test", "a.daemon", Path("scratch"), heap_mb=heap_mb, task_places=task_places
    )
    bytes_max = int(_options(settings, [], [])["spark.sql.execution.arrow.maxBytesPerBatch"])
    assert 0 < bytes_max * task_places <= heap_mb * 1_048_576 / 4


@pytest.mark.parametrize(
    ("cores", "has_rows_in_jvm", "expected"),
    [(2, False, True), (2, True, False), (8, False, False)],
)
def test_on_a_small_machine_only_who_works_on_events_in_the_jvm_has_its_optimizing_compiler(
    monkeypatch: pytest.MonkeyPatch, *, cores: int, has_rows_in_jvm: bool, expected: bool
) -> None:
    monkeypatch.setattr("shared.runtime.spark.session.core_count", lambda: cores)
    folder = Path("scratch")
    settings = SparkSettings("test", "a.daemon", folder, has_rows_in_jvm=has_rows_in_jvm)
    options = _options(settings, [], [])["spark.driver.extraJavaOptions"].split()
    assert ("-XX:TieredStopAtLevel=1" in options) is expected
    assert ("-XX:+UseSerialGC" in options) is (cores == 2)
    # The events are short-lived: collecting a small young generation takes as long as a large one.
    assert ("-XX:NewSize=256m" in options) is has_rows_in_jvm


@pytest.mark.parametrize(("is_terminal", "form"), [(True, "text"), (False, "json")])
def test_lines_of_java_have_the_form_and_the_service_of_our_own(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, form: str
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    settings = SparkSettings(
        "test", "a.daemon", Path("scratch"), service="pipelines", executor_mb=512
    )
    options = _options(settings, [], [])
    for who in ("driver", "executor"):
        words = options[f"spark.{who}.extraJavaOptions"].split()
        assert {f"-Dhifi.log={form}", "-Dhifi.service=pipelines"} <= set(words)


def test_an_executor_of_its_own_has_the_events_and_the_driver_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shared.runtime.spark.session.core_count", lambda: 2)
    settings = SparkSettings(
        "test", "a.daemon", Path("scratch"), heap_mb=512, executor_mb=768, has_rows_in_jvm=True
    )
    options = _options(settings, [], [])
    driver = options["spark.driver.extraJavaOptions"].split()
    executor = options["spark.executor.extraJavaOptions"].split()
    assert options["spark.executor.memory"] == "768m"
    for options in (driver, executor):
        assert "-XX:+ExitOnOutOfMemoryError" in options
    assert {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} <= set(driver)
    assert "-XX:TieredStopAtLevel=1" not in executor
    assert "-XX:NewSize=256m" in executor
    assert "-XX:NewSize=256m" not in driver


def test_all_jvms_of_this_machine_have_the_jars_on_one_class_path() -> None:
    """Otherwise no class of these jars is in the archive, and executors' first jobs take longer."""
    jars = [Path("/cache/one.jar"), Path("/cache/two.jar")]
    here = SparkSettings("test", "a.daemon", Path("scratch"), executor_mb=768)
    options = _options(here, jars, [])
    both = [options[f"spark.{who}.extraClassPath"] for who in ("driver", "executor")]
    assert both == ["/cache/one.jar:/cache/two.jar"] * 2
    assert "spark.jars" not in options
