"""Writes the bills of materials of a release in CycloneDX: one of Python packages, one of jars."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploy.release.tools import run
from shared.runtime.java.jars import LOCK_PATH, LockedJar, read_lock

# The licence of each group in jars.lock, as an SPDX expression.
LICENCES: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("at.yawk.lz4", "com.dynatrace.hash4j", "com.fasterxml.jackson.core"),
            *("com.fasterxml.jackson.dataformat", "com.fasterxml.jackson.datatype"),
            *("com.github.ben-manes.caffeine", "com.typesafe.scala-logging", "com.yammer.metrics"),
            *("commons-beanutils", "commons-collections", "commons-digester", "commons-logging"),
            *("commons-validator", "org.apache.commons", "org.apache.kafka"),
            *("org.apache.logging.log4j", "org.apache.spark", "org.bitbucket.b_c"),
            *("org.jspecify", "org.scala-lang", "org.xerial.snappy", "org.yaml"),
            "software.amazon.msk",
        ),
        "Apache-2.0",
    ),
    "com.github.luben": "BSD-2-Clause",
    "com.google.re2j": "BSD-3-Clause",
    "net.sf.jopt-simple": "MIT",
    "net.sourceforge.argparse4j": "MIT",
    "org.hdrhistogram": "CC0-1.0 OR BSD-2-Clause",
    "org.pcollections": "MIT",
    "org.slf4j": "MIT",
}
# Everything that an installation of Hifi may contain, and none of the tools of developers.
_SCOPE = ("--frozen", "--extra", "local", "--extra", "msk", "--no-default-groups")
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)


def jars_bom(version: str, jar_sets: Mapping[str, Sequence[LockedJar]]) -> dict[str, Any]:
    """Return the bill of all jars besides those of pyspark, which the other bill names."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": "hifi-streams", "version": version}
        },
        "components": [
            _component(jar, jar_set) for jar_set, jars in jar_sets.items() for jar in jars
        ],
    }


def _component(jar: LockedJar, jar_set: str) -> dict[str, Any]:
    group, name, version, *classifier = jar.coordinate.split(":")
    kind = "".join(f"classifier={each}&" for each in classifier)
    purl = f"pkg:maven/{group}/{name}@{version}?{kind}type=jar"
    return {
        "type": "library",
        "bom-ref": f"{jar_set}:{purl}",
        "group": group,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": jar.sha256}],
        "licenses": [{"expression": LICENCES[group]}] if group in LICENCES else [],
    }


def jar_problems(bom: Mapping[str, Any]) -> Iterator[str]:
    groups = {each["group"] for each in bom["components"] if not each["licenses"]}
    yield from (
        f"{LOCK_PATH.name} has jars of {group}: add their licence to deploy/release/boms.py"
        for group in sorted(groups)
    )


def package_problems(bom: Mapping[str, Any], requirements: str) -> Iterator[str]:
    """Compare the bill of Python packages with the locked requirements of an installation."""
    listed = {
        f"{each['name']} {each['version']}" for each in bom.get("components", ()) if "purl" in each
    }
    locked = {f"{name} {version}" for name, version in _PINNED.findall(requirements)}
    if not locked:
        yield "`uv export` names no requirements: run `.tools/bin/uv lock`"
    yield from (
        f"the bill of Python packages lacks {each}: compare `uv export --format cyclonedx1.5`"
        " with uv.lock"
        for each in sorted(locked - listed)
    )


def written_boms(version: str) -> tuple[dict[str, str], list[str]]:
    """Return the text of each bill by its file name, and what is wrong with them."""
    jars = jars_bom(version, read_lock())
    text = run("uv", "export", "--quiet", "--format", "cyclonedx1.5", *_SCOPE)
    wanted = ("--no-emit-project", "--no-hashes", "--no-annotate", "--no-header")
    requirements = run("uv", "export", "--quiet", *_SCOPE, *wanted)
    texts = {
        f"hifi-streams-{version}-packages.cdx.json": text,
        f"hifi-streams-{version}-jars.cdx.json": json.dumps(jars, indent=1) + "\n",
    }
    return texts, [*jar_problems(jars), *package_problems(json.loads(text), requirements)]
