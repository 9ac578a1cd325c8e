"""Says what of a plan, a rating, a price list, a trace or a policy cannot be."""


class ScaleError(ValueError):
    """Something that was given cannot be read or planned; the text says what, and what to do."""


class ImpossibleError(ScaleError):
    """No plan can do this; `limit` names what binds."""

    def __init__(self, limit: str, text: str) -> None:
        super().__init__(text)
        self.limit = limit
