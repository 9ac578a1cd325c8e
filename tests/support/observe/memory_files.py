"""Keeps an audit's memory in a file, where a test needs no Kafka."""

from pathlib import Path

from observe.audit.memory import Memory


def load(folder: Path) -> Memory:
    path = folder / "memory"
    return Memory.from_bytes(path.read_bytes() if path.exists() else None)


def save(memory: Memory, folder: Path) -> None:
    (folder / "memory").write_bytes(memory.to_bytes())
