"""Checks a source file against the rules of the house; each finding is file:line and rule.

Every rule is a function of a file's path and text, so that a test can show that it bites.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping

from tests.tidy.sources import parsed

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400
LINE_CHARS_MAX = 100
DECIDER = "shared/retry/decision.py"
MODULES_MAX = 15

# Such a name says where code was put, not what it does.
BANNED_NAMES = frozenset({"utils", "util", "common", "helpers", "models", "types", "base", "misc"})

# Participles that do not end in -ed, and adverbs.
NO_NOUNS = frozenset(
    {
        *("Around", "Before", "Beside", "Lately", "Already", "Alone", "Apart", "Elsewhere"),
        *("Begun", "Bound", "Built", "Came", "Chosen", "Done", "Found", "Given", "Gone", "Heard"),
        *("Held", "Kept", "Known", "Left", "Lost", "Made", "Met", "Put", "Read", "Said", "Seen"),
        *("Sent", "Shown", "Shut", "Taken", "Told", "Written"),
    }
)
NOUNS_IN_ED = frozenset({"Deed", "Feed", "Need", "Seed", "Speed"})
# Other programs import these names; they change with the vocabulary of the clients.
PUBLISHED_NAMES = frozenset(
    {
        "clients/python/hifi_client/receiving/seen.py",
        "clients/python/hifi_client/sending/fates.py",
    }
)

OWN = frozenset({"shared", "gateway", "delivery", "pipelines", "observe", "console", "loadtests"})

# The libraries of the core: JSON for records read by the million, and settings (ADR 0037).
DATA_LIBRARIES = frozenset({"msgspec", "pydantic"})
# Names that would make the core depend on the moment or the machine.
IMPURE = frozenset(
    {
        "asyncio",
        "concurrent",
        "http",
        "importlib",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "socket",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "urllib.request",
        "uuid",
    }
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__", "now", "utcnow"})

METRIC_LIKE = re.compile(r"\bhifi_")
TOPIC_LIKE = re.compile(
    r"\bhifi\.(stream|retry|dead|receipts|acked|minutes|statements|audit|lane|config|state)\b"
)
# A pragma for a tool at the end of a line; ruff does not count it either.
PRAGMA = re.compile(r"\s*# (noqa|type: ignore|pragma)\b.*$")
CLOCK_OF_LOOPS = re.compile(r"""setattr\((time, |["']time\.)["']?monotonic\b""")
# Home and work folders of a developer's machine.
MACHINE_PATH = re.compile(r"(?<![\w.~$}])/(?:root|work|home/\w+)/")


def findings(path: str, text: str) -> Iterator[str]:
    """Return the rules that a Python file of ours breaks."""
    yield from name_is_a_concept(path)
    yield from starts_with_a_sentence(path, text)
    yield from is_short_enough(path, text)
    yield from has_short_functions(path, text)
    yield from has_no_double_underscores(path, text)
    yield from leaves_the_clock_of_loops(path, text)


def name_is_a_concept(path: str) -> Iterator[str]:
    *folders, file = path.split("/")
    for name in (*folders, file.removesuffix(".py")):
        if name in BANNED_NAMES:
            yield f"{path}:1: {name!r} names no concept; call it after what it decides or does"


def starts_with_a_sentence(path: str, text: str) -> Iterator[str]:
    docstring = ast.get_docstring(parsed(text)) or ""
    first = docstring.split("\n\n")[0]
    if not re.match(r"[A-Z`].*[.:;](\s|$)", first, re.DOTALL):
        yield f"{path}:1: the module starts with a docstring whose first sentence says what it does"
    if first.startswith("Decides") and path != DECIDER:
        yield f"{path}:1: only {DECIDER} decides; say what the module does, with a verb of its own"


def is_short_enough(path: str, text: str) -> Iterator[str]:
    lines = text.splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield f"{path}:{FILE_LINES_MAX + 1}: a file has at most {FILE_LINES_MAX} lines"
    for number, line in enumerate(lines, start=1):
        if len(line) > LINE_CHARS_MAX < len(PRAGMA.sub("", line)):
            yield f"{path}:{number}: a line has at most {LINE_CHARS_MAX} characters"


def has_short_functions(path: str, text: str) -> Iterator[str]:
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            if length > FUNCTION_LINES_MAX:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {length} lines without its docstring,"
                    f" a function has at most {FUNCTION_LINES_MAX}"
                )


def has_no_double_underscores(path: str, text: str) -> Iterator[str]:
    for node in ast.walk(parsed(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                pass
            case ast.ClassDef(name=name) | ast.Attribute(attr=name) | ast.Name(id=name):
                pass
            case _:
                continue
        if name.startswith("__") and not name.endswith("__"):
            yield f"{path}:{node.lineno}: {name} is private with one underscore, never two"


def leaves_the_clock_of_loops(path: str, text: str) -> Iterator[str]:
    """Event loops in other threads read `time.monotonic`: their timers would be hours off."""
    for number, line in enumerate(text.splitlines(), start=1):
        if "monotonic" in line and CLOCK_OF_LOOPS.search(line):
            yield f"{path}:{number}: replace the name `time` in the module under test instead"


def is_pure(path: str, text: str) -> Iterator[str]:
    """Check that the core uses the standard library, msgspec and pydantic only, and is pure."""
    tree = parsed(text)
    for line, module in imports(tree):
        top = module.partition(".")[0]
        # The import contract checks whether our own imported modules are pure, too.
        if top in OWN and not module.startswith("shared.runtime"):
            continue
        if top not in sys.stdlib_module_names | DATA_LIBRARIES:
            yield f"{path}:{line}: the core imports the standard library and few more, not {module}"
        elif any(module == impure or module.startswith(impure + ".") for impure in IMPURE):
            yield f"{path}:{line}: the core has no clock, dice, socket or file: {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in IMPURE_CALLS:
            yield f"{path}:{node.lineno}: the core touches nothing outside: {_called(node)}()"


def reads_no_environment(path: str, text: str) -> Iterator[str]:
    for node in ast.walk(parsed(text)):
        match node:
            case ast.Attribute(attr="environ" | "environb" | "getenv" | "getenvb"):
                pass
            case ast.ImportFrom(module="os", names=names) if any(
                alias.name in {"environ", "environb", "getenv", "getenvb"} for alias in names
            ):
                pass
            case _:
                continue
        yield f"{path}:{node.lineno}: only settings files read the environment"


def spells_no_topic(path: str, text: str) -> Iterator[str]:
    for line, literal in literals(parsed(text)):
        if TOPIC_LIKE.search(literal):
            yield f"{path}:{line}: only shared/event/topics.py spells a topic name: {literal!r}"


def spells_no_metric(path: str, text: str, *, except_for: Mapping[str, str]) -> Iterator[str]:
    for line, literal in literals(parsed(text)):
        if METRIC_LIKE.search(literal) and literal not in except_for:
            yield f"{path}:{line}: only shared/metric_names.py spells a metric: {literal!r}"


def imports_only_shared(path: str, text: str, *, packages: frozenset[str]) -> Iterator[str]:
    """The load tests look at Hifi from outside."""
    for line, module in imports(parsed(text)):
        if module.partition(".")[0] in packages - {"shared"}:
            yield f"{path}:{line}: load tests import nothing of ours but shared, not {module}"


def names_no_machine(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := MACHINE_PATH.search(line):
            yield f"{path}:{number}: no path of somebody's machine: {found.group()!r}"


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and full name of each imported module, even within functions."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                # `from shared import runtime` imports shared.runtime.
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in names)
            case ast.ImportFrom():
                yield node.lineno, "a relative import"
            case _:
                continue


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each string and bytes literal, with f-strings and no docstring."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            match node.value:
                case str(text):
                    yield node.lineno, text
                case bytes(raw):
                    yield node.lineno, raw.decode(errors="replace")
                case _:
                    continue


def is_no_noun(class_name: str) -> bool:
    """Return whether a class name is a participle or an adverb alone, like `Told` or `Beside`."""
    word = class_name.lstrip("_")
    is_one_word = word[:1].isupper() and word[1:].islower()
    return is_one_word and (word.endswith("ed") or word in NO_NOUNS) and word not in NOUNS_IN_ED


def classes(text: str) -> list[str]:
    """Every class that a file defines, within other classes and functions too."""
    return [node.name for node in ast.walk(parsed(text)) if isinstance(node, ast.ClassDef)]


def names_another_page(path: str, text: str) -> Iterator[str]:
    """Check that a page's file, its function and its address have the same name."""
    name = path.rpartition("/")[2].removesuffix(".py")
    if not re.search(rf"^(async )?def {name}\(", text, re.MULTILINE):
        yield f"it has no function {name}"
    for address in re.findall(r'^PATH = "/(.*)"$', text, re.MULTILINE):
        if f"{address.replace('/', '_')}_page" != name:
            yield f"it serves /{address}"


def names_used(text: str) -> frozenset[str]:
    """Return every name and attribute that a file mentions, except in its imports."""
    return frozenset(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Name | ast.Attribute)
    )


def streams_used(text: str) -> frozenset[str]:
    """The names of streams for which a test module creates destinations, or to which it posts."""
    tree = parsed(text)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    given = [
        *(key.value for call in calls for key in call.keywords if key.arg == "stream"),
        *(c.args[0] for c in calls if _called(c) in {"Destination", "post"} and c.args),
    ]
    named = (
        constants.get(each.id) if isinstance(each, ast.Name) else getattr(each, "value", None)
        for each in given
    )
    return frozenset(name for name in named if isinstance(name, str))


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node, clean=False) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def _called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
