"""The bill of jars has the licences that the jars themselves name."""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from deploy.release.boms import LICENCES
from shared.runtime.java.jars import read_lock

# How a jar names the licence with each SPDX identifier.
NAMES = {
    "Apache-2.0": r"Apache(?: Software)? License|Apache-2\.0|apache\.org/licenses/LICENSE-2\.0",
    "BSD-2-Clause": r"BSD[- ]2-Clause",
    "BSD-3-Clause": r"BSD[- ]3-Clause",
    "CC0-1.0": r"publicdomain/zero/1\.0",
    "MIT": r"\bMIT\b|mit-license",
}
# These jars name no licence; their poms in the registry, or the parents of those, do.
SILENT = {"hash4j", "metrics-core", "pcollections", "re2j", "slf4j-api"}
# Longer than the title of a licence, shorter than its text, which may name others.
TITLE_CHARS = 200


def test_each_jar_names_the_licence_in_the_bill(jars_cache: Path) -> None:
    silent, wrong = set(), {}
    for jar_set, jars in read_lock().items():
        for jar in jars:
            path = jars_cache / "jars" / jar_set / jar.file_name
            # Only a Kafka of Amazon's needs the jar for its login.
            if jar_set == "msk" and not path.exists():
                continue
            group, name = jar.coordinate.split(":")[:2]
            text = "\n".join(_own_words(path, pom=f"META-INF/maven/{group}/{name}/pom.xml"))
            named = {licence for licence, words in NAMES.items() if re.search(words, text)}
            if not named:
                silent.add(name)
            elif named != set(LICENCES[group].split(" OR ")):
                wrong[jar.coordinate] = (named, LICENCES[group])
    assert wrong == {}
    assert silent == SILENT


def _own_words(path: Path, *, pom: str) -> Iterator[str]:
    """Yield what the jar's manifest, pom and licence file say about its licence."""
    with zipfile.ZipFile(path) as jar:
        for name in jar.namelist():
            if name == pom:
                yield from re.findall(r"<licenses>.*?</licenses>", _text(jar, name), re.DOTALL)
            elif name == "META-INF/MANIFEST.MF":
                unfolded = re.sub(r"\r?\n ", "", _text(jar, name))
                yield from re.findall(r"^Bundle-License: .*", unfolded, re.MULTILINE)
            elif re.fullmatch(r"(META-INF/)?LICENSE(\.txt)?", name):
                yield _text(jar, name)[:TITLE_CHARS]


def _text(jar: zipfile.ZipFile, name: str) -> str:
    return jar.read(name).decode(errors="replace")
