"""The rules of the house hold in every file of the repository."""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from importlib import util
from pathlib import Path

from shared import metric_names
from shared.metric_names import Metric
from tests.tidy import house_rules, sources

# The other readers of the environment, with their reasons.
ENVIRONMENT_READERS = {
    "shared/runtime/java/java.py": "JAVA_HOME and PATH are where every program looks for Java",
    "shared/runtime/java/cache_folder.py": "it is asked for before there are settings",
    "shared/runtime/spark/session.py": "it writes: Spark reads its Python and address there",
    "shared/runtime/spark/daemon_copies.py": "a copy has the environment of whom it stands for",
    "deploy/cli/up.py": "it hands its own environment on to the services that it starts",
    "deploy/cli/scale/fresh.py": "as up.py",
    "deploy/health.py": "it runs every few seconds, and settings take half a second to load",
    "deploy/cli/migrating/migrate.py": "it looks for old names among all variables",
    "deploy/cli/control/pipeline_files.py": "a document may name the variable of a password",
}
# Names that begin like a metric but are none.
NO_METRICS = {"hifi_positions": "the table of a database that holds positions"}
EXTRAS = {
    "runtime",
    "cli",
    "gateway",
    "spark",
    "delivery",
    "retrier",
    "pipelines",
    "observe",
    "msk",
    "java",
    "local",
}


def assert_none(found: Iterable[str]) -> None:
    listed = list(found)
    assert not listed, "\n" + "\n".join(listed)


def test_the_rules_look_at_the_whole_repository() -> None:
    product = sources.product_files()
    assert {path.split("/")[0] for path in product} == set(sources.PRODUCT)
    assert {
        "shared/retry/decision.py",
        "shared/runtime/clock.py",
        "gateway/publish/publisher.py",
    } <= set(product)
    assert "tests/tidy/test_house.py" in sources.python_files()


def test_every_file_is_short_named_after_a_concept_and_says_what_it_does() -> None:
    assert_none(
        finding
        for path, text in sources.python_files().items()
        for finding in house_rules.findings(path, text)
    )


def test_the_core_is_pure() -> None:
    assert_none(
        finding
        for path, text in sources.core_files().items()
        for finding in house_rules.is_pure(path, text)
    )


def test_a_module_that_calls_itself_pure_is() -> None:
    claims = {
        path: text
        for path, text in sources.product_files().items()
        if re.search(r"\bPure\b", ast.get_docstring(sources.parsed(text)) or "")
    }
    assert claims, "no module calls itself pure"
    assert_none(
        finding
        for path, text in claims.items()
        for finding in house_rules.is_pure(path, text)
        # Plain values of the runtime, and Arrow's batches, involve neither clock nor socket.
        if not re.search(r"not (shared\.runtime\.|pyarrow)", finding)
    )


def test_only_settings_files_read_the_environment() -> None:
    assert_none(
        finding
        for path, text in sources.product_files().items()
        if not path.endswith("/settings.py") and path not in ENVIRONMENT_READERS
        for finding in house_rules.reads_no_environment(path, text)
    )


def test_each_exception_for_the_environment_is_still_needed() -> None:
    product = sources.product_files()
    assert_none(
        f"{path}:1: reads no environment (any more): take it off the list"
        for path in ENVIRONMENT_READERS
        if not list(house_rules.reads_no_environment(path, product.get(path, "")))
    )


def test_only_topics_spells_a_topic() -> None:
    assert_none(
        finding
        for path, text in sources.product_files().items()
        if path != "shared/event/topics.py"
        for finding in house_rules.spells_no_topic(path, text)
    )


def test_only_the_catalogue_spells_a_metric() -> None:
    assert_none(
        finding
        for path, text in sources.product_files().items()
        if path != "shared/metric_names.py"
        for finding in house_rules.spells_no_metric(path, text, except_for=NO_METRICS)
    )


def test_every_metric_of_the_catalogue_is_used() -> None:
    used: set[str] = set()
    for path, text in sources.product_files().items():
        if path != "shared/metric_names.py":
            used |= house_rules.names_used(text)
    assert_none(
        f"shared/metric_names.py:1: {name} is in the catalogue and nobody uses it"
        for name, value in vars(metric_names).items()
        if isinstance(value, Metric) and name not in used
    )


def test_a_class_name_stands_for_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for path, text in sources.product_files().items():
        for name in house_rules.classes(text):
            homes.setdefault(name.lstrip("_"), []).append(path)
    assert_none(
        f"{paths[0]}:1: class {name} is also in {', '.join(paths[1:])}: name each after its concept"
        for name, paths in homes.items()
        if len(paths) > 1
    )


def test_a_class_name_is_a_noun() -> None:
    assert_none(
        f"{path}:1: class {name} is a participle or an adverb: name the thing"
        for path, text in sources.python_files().items()
        for name in house_rules.classes(text)
        if house_rules.is_no_noun(name) and path not in house_rules.PUBLISHED_NAMES
    )


def test_a_page_and_its_file_have_one_name() -> None:
    pages = {
        path: text
        for path, text in sources.product_files().items()
        if path.startswith("console/pages/") and path.endswith("_page.py")
    }
    assert pages, "the pages of the console are not found"
    assert_none(
        f"{path}:1: {wrong}"
        for path, text in pages.items()
        for wrong in house_rules.names_another_page(path, text)
    )


def test_a_folder_has_at_most_fifteen_modules() -> None:
    folders: dict[str, int] = {}
    for path in sources.product_files():
        folder, _, file = path.rpartition("/")
        folders[folder] = folders.get(folder, 0) + (file != "__init__.py")
    assert_none(
        f"{folder}/: {count} modules, {house_rules.MODULES_MAX} at most: build a wall"
        for folder, count in folders.items()
        if count > house_rules.MODULES_MAX
    )


def test_load_tests_import_only_shared() -> None:
    packages = frozenset(sources.PRODUCT) | {"tests"}
    assert_none(
        finding
        for path, text in sources.python_files().items()
        if path.startswith("loadtests/")
        for finding in house_rules.imports_only_shared(path, text, packages=packages)
    )


def test_a_client_imports_nothing_of_ours_and_nobody_elses() -> None:
    allowed = frozenset(sys.stdlib_module_names) | {"hifi_client"}
    # An optional package: the module also works without it.
    extras = {"clients/python/hifi_client/sending/json_writer.py": "msgspec"}
    assert_none(
        f"{path}:{line}: a client needs the standard library alone, not {module}"
        for path, text in sources.python_files().items()
        if path.startswith("clients/")
        for line, module in house_rules.imports(sources.parsed(text))
        if module.partition(".")[0] not in allowed | {extras.get(path)}
    )


def test_what_judges_a_rating_is_pure() -> None:
    rooms = sources.python_files()
    pure = ("arrivals", "open_loop", "search", "slo", "usl")
    assert_none(
        finding
        for path in (f"loadtests/{name}.py" for name in pure)
        for finding in house_rules.is_pure(path, rooms[path])
    )


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    # The rule itself, and the test that shows that it works, have to contain such paths.
    spelt = {"tests/tidy/house_rules.py", "tests/tidy/test_rules_bite.py"}
    assert_none(
        finding
        for path, text in sources.tracked()
        if path not in spelt
        for finding in house_rules.names_no_machine(path, text)
    )


def test_no_two_modules_of_tests_use_one_stream_of_the_hifi_that_they_share() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path, text in sources.python_files().items():
        if path.startswith("tests/integration/") and "hifi: RunningHifi" in text:
            for stream in house_rules.streams_used(text):
                modules[stream].append(path)
    assert modules, "the tests that share one Hifi are not found"
    assert_none(
        f"the stream {stream} is of {' and of '.join(paths)}: give each its own"
        for stream, paths in modules.items()
        if len(paths) > 1
    )


def test_each_service_has_its_extra_and_the_core_needs_only_data_libraries() -> None:
    project = tomllib.loads((sources.ROOT / "pyproject.toml").read_text())["project"]
    needed = {name.partition(">")[0] for name in project["dependencies"]}
    assert needed == house_rules.DATA_LIBRARIES, "pyproject.toml: the core needs nothing else"
    missing = EXTRAS - set(project["optional-dependencies"])
    assert not missing, f"pyproject.toml: no extra for {sorted(missing)}"


def test_generated_documents_are_current() -> None:
    path = sources.ROOT / "docs" / "generate.py"
    assert generator(path).main(["--check"]) == 0, "docs/: run python docs/generate.py"


def test_a_document_that_is_behind_is_found_and_written_anew(tmp_path: Path) -> None:
    generate = generator(sources.ROOT / "docs" / "generate.py")
    assert generate.main(["--check"], tmp_path) == 1
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    (tmp_path / "metrics.md").write_text("an older catalogue")
    assert generate.stale(tmp_path) == ["metrics.md"]


def generator(path: Path):  # type: ignore[no-untyped-def]  # noqa: ANN201 - a module made on the spot
    spec = util.spec_from_file_location("docs_generate", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
