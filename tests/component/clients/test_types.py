"""The JavaScript client's types: the compiler takes right programs, refuses wrong ones, and the
types name what the code has."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.suite.programs import program
from tests.tidy import sources

CLIENT = sources.ROOT / "clients" / "javascript"
COMPILER = sources.ROOT / "tests/packages/typescript/node_modules/typescript/bin/tsc"

pytestmark = pytest.mark.skipif(not COMPILER.exists(), reason="make puts TypeScript there")

RIGHT = """
import { FullError, Receiver, RefusedError, Sender, SeenInMemory } from "hifi-streams-client";
import type { Outcome } from "hifi-streams-client";

async function send(): Promise<string> {
  const hifi = new Sender("http://127.0.0.1:8080", "orders", { key: "k", isIdempotent: true });
  const sent = hifi.send({ type: "sale", price: 5 }, { key: "eu" });
  const outcome: Outcome = await sent.outcome();
  if (outcome.fate === "not_stored") return outcome.reason;
  await hifi.close({ withinMs: 100 });
  return sent.known?.fate ?? hifi.problem;
}

const receiver = new Receiver(["whsec_AAAA"], { seen: new SeenInMemory(10), toleranceS: 60 });
export const handler = receiver.handler(async (event) => {
  if (event.price < 0) throw new RefusedError("a price is never negative");
});
const answering = receiver.answer({}, new Uint8Array(), () => undefined);
export const reply = answering.then((it) => it.status + 1);
export const isFull = (error: unknown) => error instanceof FullError && error.message;
export const sending = send();
"""
PAGE = """
import { Sender } from "hifi-streams-client/browser";
export const fate = new Sender("https://hifi.example", "orders").send("{}").outcome();
"""
WRONG = {
    "an option that there is not": 'new Sender("http://h", "s", { retries: 3 });',
    "a compression that there is not": 'new Sender("http://h", "s", { compression: "zip" });',
    "an event that is a number": 'new Sender("http://h", "s").send(5);',
    "a fate that there is not": (
        'new Sender("http://h", "s").send({}).outcome().then((it) => it.fate === "stored");'
    ),
    "a status that is a text": "new Receiver(null).answer({}, new Uint8Array(), () => 0)"
    ".then((it) => { const status: string = it.status; return status; });",
}


def compiled(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Compile a program that has the client among its packages; write nothing."""
    packages = folder / "node_modules"
    packages.mkdir(exist_ok=True)
    if not (packages / "hifi-streams-client").exists():
        (packages / "hifi-streams-client").symlink_to(CLIENT)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "use.ts").write_text(text)
    options = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022")
    return subprocess.run(
        [program("node"), COMPILER, *options, "--lib", "es2022,dom", "use.ts"],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("text", [RIGHT, PAGE], ids=["node", "page"])
def test_right_programs_are_taken(tmp_path: Path, text: str) -> None:
    ended = compiled(tmp_path, text)
    assert ended.returncode == 0, ended.stdout


def test_each_mistake_is_found(tmp_path: Path) -> None:
    imports = (
        'import { Receiver, Sender } from "hifi-streams-client";\nvoid Receiver; void Sender;\n'
    )
    ended = compiled(tmp_path, imports + "\n".join(WRONG.values()))
    lines = {int(number) for number in re.findall(r"use\.ts\((\d+),", ended.stdout)}
    assert lines == {*range(3, 3 + len(WRONG))}, ended.stdout


@pytest.mark.parametrize("name", ["index", "browser"])
def test_the_types_name_what_the_code_exports(name: str) -> None:
    # A page's module listens to its page.
    ask = f"import('./src/{name}.js').then((it) => console.log(JSON.stringify(Object.keys(it))))"
    said = subprocess.run(
        [program("node"), "--input-type=module", "-e", ask],
        cwd=CLIENT,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    ).stdout
    assert {*json.loads(said)} == classes_of(f"{name}.d.ts")


def classes_of(file: str) -> set[str]:
    """Return the classes that a file of types exports, by itself or from others."""
    text = (CLIENT / "types" / file).read_text()
    others = re.findall(r'export \* from "\./(\w+)\.js"', text)
    named = {*re.findall(r"export class (\w+)", text)}
    return named.union(*(classes_of(f"{other}.d.ts") for other in others))


def test_the_types_name_each_option_of_a_sender() -> None:
    text = (CLIENT / "types" / "sender.d.ts").read_text()
    options = text.partition("interface SenderOptions {")[2].partition("\n}")[0]
    source = (CLIENT / "src" / "sender.js").read_text()
    defaults = source.partition("const DEFAULTS = Object.freeze({")[2].partition("\n});")[0]
    assert re.findall(r"^  (\w+)\?:", options, re.MULTILINE) == re.findall(
        r"^  (\w+):", defaults, re.MULTILINE
    )
