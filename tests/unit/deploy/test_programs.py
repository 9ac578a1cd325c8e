"""Programs whose packages are missing end with one sentence; all other errors stay errors."""

import sys
from types import ModuleType

import pytest

from deploy import programs


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Register a module as the program's, whose main function a test sets."""
    module = ModuleType("a_service")
    monkeypatch.setitem(sys.modules, "a_service", module)
    return module


@pytest.mark.parametrize(
    ("package", "extra", "expected"),
    [
        ("typer", "", "cli"),
        ("yaml", "", "cli"),
        ("uvloop", "", "gateway"),
        ("psycopg", "", "local"),
        ("pyspark", "", "local"),
        ("pyspark", "retrier", "retrier"),
    ],
)
def test_the_smallest_extra_with_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, service: ModuleType, package: str, extra: str, expected: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    service.main = lambda: __import__(package)  # type: ignore[attr-defined]
    with pytest.raises(SystemExit) as ended:
        programs._start("hifi it", "a_service", extra=extra)
    said = str(ended.value)
    assert said.startswith(f"hifi it: the package {package} is not installed.")
    assert f'uv tool install "hifi-streams[{expected}]"' in said


def test_a_missing_module_of_our_own_is_a_bug_and_not_a_missing_package(
    service: ModuleType,
) -> None:
    service.main = lambda: __import__("shared.no_such_module")  # type: ignore[attr-defined]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        programs._start("hifi it", "a_service")
