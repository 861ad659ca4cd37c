"""Bounds on what the page shows of one rollout, so that no rollout can make the page slow."""

TEXT_LIMIT = 20_000
"""Characters shown of one text: more than any page of reading, and far less than a stuck generation."""
ROLLOUT_LIMIT = 400_000
"""Characters shown of all texts of a rollout."""
LIST_LIMIT = 200
"""Turns, runs, calls of a turn, or arguments of a call shown."""
ITEM_LIMIT = 2000
"""Items shown of all lists of a rollout."""
NAME_LIMIT = 200
"""Characters of a name: more than any real one has."""


class Cutter:
    """Cuts long texts in the middle and long lists at the end, and counts what it took."""

    def __init__(self) -> None:
        self.room = ROLLOUT_LIMIT
        self.item_room = ITEM_LIMIT
        self.characters = 0
        self.items = 0

    def text(self, text: str) -> str:
        """The text, or its beginning and end. Raises TypeError when it is no text."""
        if not isinstance(text, str):
            raise TypeError(f"expected a text, not {type(text).__name__}")
        limit = min(TEXT_LIMIT, self.room)
        if len(text) <= limit:
            self.room -= len(text)
            return text
        self.room -= limit
        left_out = len(text) - limit
        self.characters += left_out
        head, tail = limit - limit // 3, limit // 3
        return f"{text[:head]}\n[... {left_out:,} characters are not shown ...]\n{text[len(text) - tail :]}"

    def items_of(self, items: list) -> list:
        """The list, or its first items."""
        kept = items[: min(LIST_LIMIT, self.item_room)]
        self.item_room -= len(kept)
        self.items += len(items) - len(kept)
        return kept


def name(text: str) -> str:
    """A name, cut when it is longer than any real one. Raises TypeError when it is no text."""
    if not isinstance(text, str):
        raise TypeError(f"expected a name, not {type(text).__name__}")
    return text if len(text) <= NAME_LIMIT else f"{text[:NAME_LIMIT]} [...]"
