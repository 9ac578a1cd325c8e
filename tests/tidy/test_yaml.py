"""YAML files are valid, and the workflows of continuous integration run things that exist."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.tidy import sources

# A chart's templates become YAML only when Helm renders them.
TEMPLATES = "deploy/chart/templates/"
WORKFLOWS = ".github/workflows/"
# An action's owner, name and commit, and its version for people.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def yaml_files() -> dict[str, str]:
    return {
        path: text
        for path, text in sources.tracked()
        if path.endswith((".yaml", ".yml")) and not path.startswith(TEMPLATES)
    }


def wrong(text: str) -> str | None:
    """Return what is wrong with a file; PyYAML would silently take the last of two equal keys."""
    try:
        for node in yaml.compose_all(text, yaml.SafeLoader):
            if twice := next(repeated_keys(node), None):
                return f"the key {twice} is there twice"
    except yaml.YAMLError as error:
        return str(error)
    return None


def repeated_keys(node: Any) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        yield from (key for key in set(keys) if keys.count(key) > 1)
        for _, value in node.value:
            yield from repeated_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from repeated_keys(each)


def workflows() -> dict[str, str]:
    return {path: text for path, text in yaml_files().items() if path.startswith(WORKFLOWS)}


def test_every_yaml_file_is_valid() -> None:
    files = yaml_files()
    assert {"compose.yaml", ".github/dependabot.yml", f"{WORKFLOWS}release.yaml"} <= files.keys()
    assert [(path, what) for path, text in files.items() if (what := wrong(text))] == []


@pytest.mark.parametrize("text", ["a: [", "a: 1\na: 2\n", "a:\n  b: 1\n  b: 1\n", "a:\n\tb: 1\n"])
def test_a_fault_in_yaml_is_found(text: str) -> None:
    assert wrong(text) is not None


def test_every_action_is_named_by_its_hash_with_its_version_behind() -> None:
    used = [
        (path, action)
        for path, text in workflows().items()
        for action in re.findall(r"^ *- uses: (.+)$|^ *uses: (.+)$", text, re.MULTILINE)
    ]
    assert used, "no workflow uses an action"
    assert [(path, it) for path, it in used if not PINNED.fullmatch("".join(it))] == []


def test_every_workflow_begins_without_permissions_and_ends_in_time() -> None:
    for path, text in workflows().items():
        workflow = yaml.safe_load(text)
        assert workflow["permissions"] == {}, path
        for name, job in workflow["jobs"].items():
            assert {"permissions", "timeout-minutes"} <= job.keys(), (path, name)


def test_every_target_that_a_workflow_makes_is_in_the_makefile() -> None:
    makefile = (sources.ROOT / "Makefile").read_text().replace("$(UV)", ".tools/bin/uv")
    targets = {
        name
        for line in re.findall(r"^([\w./ -]+):(?!=)", makefile, re.MULTILINE)
        for name in line.split()
    }
    made: set[str] = set()
    for text in workflows().values():
        made |= set(re.findall(r"run: .*?\bmake ([a-z./-]+)", text))
        for matrix in re.findall(r"target: \[([^]]+)\]", text):
            made |= set(matrix.split(", "))
    assert {"unit", "test-aws", "release-check"} <= made
    assert made - targets == set()
