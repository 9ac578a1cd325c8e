"""Errors of plans, ratings, price files, traces and policies."""


class ScaleError(ValueError):
    """An input cannot be read or planned; the text says which, and what to do."""


class ImpossibleError(ScaleError):
    """No plan is possible; `limit` names the resource that is too small."""

    def __init__(self, limit: str, text: str) -> None:
        super().__init__(text)
        self.limit = limit
