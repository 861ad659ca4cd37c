"""The tools of the demo world: small deterministic functions with real schemas.

Arguments come from short closed vocabularies, so that a model of a few million parameters can learn to copy
them.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

CITIES = ("Oslo", "Lima", "Cairo", "Paris", "Tokyo", "Quito", "Delhi", "Accra")
DAYS = ("today", "tomorrow")
ITEMS = ("milk", "bread", "rice", "tea", "soap", "salt")
PEOPLE = ("Ada", "Ben", "Eva", "Max", "Zoe", "Tom")
CURRENCIES = ("usd", "eur", "yen")
GENRES = ("jazz", "rock", "folk")
TOPICS = ("sport", "art", "money")
DIGITS = tuple(range(1, 10))

Arguments = dict[str, Any]


def _mix(*values: Any) -> int:
    """A small number that depends on its arguments alone, on every machine."""
    return sum(ord(letter) * at for at, letter in enumerate(json.dumps(values), start=1))


@dataclass(frozen=True)
class Tool:
    """One tool of the world.

    properties, required: its JSON schema. values: what each argument may be.
    answer: the tool itself. question: how a user asks for it; an optional argument that is drawn adds
    `option`. reply: how the answer is told.
    """

    server: str
    name: str
    description: str
    properties: dict[str, Any]
    required: tuple[str, ...]
    values: dict[str, tuple[Any, ...]]
    answer: Callable[[Arguments], dict[str, Any]]
    question: str
    reply: str
    option: str = ""

    @property
    def full_name(self) -> str:
        """The name in calls, `<server>-<tool>`."""
        return f"{self.server}-{self.name}"

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The OpenAI-style schema."""
        parameters: dict[str, Any] = {"type": "object", "properties": self.properties}
        if self.required:
            parameters["required"] = list(self.required)
        function = {
            "name": self.full_name,
            "description": self.description,
            "parameters": parameters,
            "returns": {"type": "object", "properties": self._answer_properties()},
        }
        return {"type": "function", "function": function}

    def _answer_properties(self) -> dict[str, Any]:
        """Every value that each field of the answer can have, so that a simulator's answers look like real ones."""
        optional = [name for name in self.values if name not in self.required]
        omitted = [dict.fromkeys(names) for size in range(len(optional) + 1) for names in combinations(optional, size)]
        answers = [
            self.answer(dict(zip(names, chosen, strict=True)))
            for left_out in omitted
            for names in [[name for name in self.values if name not in left_out]]
            for chosen in product(*(self.values[name] for name in names))
        ]
        return {field: {"enum": sorted({answer[field] for answer in answers})} for field in answers[0]}

    def draw(self, rng: random.Random) -> Arguments:
        """Arguments for one task; an optional argument is there half of the time."""
        wanted = [name for name in self.values if name in self.required or rng.random() < 0.5]
        return {name: rng.choice(self.values[name]) for name in wanted}

    def ask(self, arguments: Arguments) -> str:
        """The question that these arguments answer."""
        optional = [name for name in self.values if name not in self.required and name in arguments]
        text = self.question.format(**arguments)
        return text + self.option.format(**arguments) if optional else text

    def tell(self, arguments: Arguments) -> str:
        """One sentence that quotes the answer."""
        return self.reply.format(**{**arguments, **self.answer(arguments)})


def _string(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)} if values else {"type": "string"}


def _digit() -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": 9}


TOOLS = (
    Tool(
        "weather", "forecast", "Weather of a city",
        {"city": _string(), "day": _string(*DAYS)}, ("city",), {"city": CITIES, "day": DAYS},
        lambda a: {"sky": ("sun", "rain", "snow", "fog")[_mix(a) % 4], "temp": _mix(a, "t") % 30},
        "Weather in {city}", "{city}: {sky}, {temp} degrees.", " {day}",
    ),
    Tool(
        "weather", "air", "Air quality of a city",
        {"city": _string()}, ("city",), {"city": CITIES},
        lambda a: {"air": ("good", "fair", "bad")[_mix(a) % 3]},
        "How is the air in {city}", "The air in {city} is {air}.",
    ),
    Tool(
        "travel", "distance", "Distance of two cities",
        {"from": _string(), "to": _string()}, ("from", "to"), {"from": CITIES[:4], "to": CITIES[4:]},
        lambda a: {"km": _mix(a) % 90 + 10},
        "How far is {to} from {from}", "{from} to {to} is {km} km.",
    ),
    Tool(
        "travel", "hotel", "Find a hotel",
        {"city": _string(), "stars": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}},
        ("city",), {"city": CITIES, "stars": (2, 3, 4, 5)},
        lambda a: {"hotel": ("Star", "Palm", "Rose", "Lake")[_mix(a) % 4]},
        "Find a hotel in {city}", "Hotel {hotel} in {city}.", " with {stars} stars",
    ),
    Tool(
        "math", "add", "Add two numbers",
        {"a": _digit(), "b": _digit()}, ("a", "b"), {"a": DIGITS, "b": DIGITS},
        lambda a: {"sum": a["a"] + a["b"]},
        "Add {a} and {b}", "The sum is {sum}.",
    ),
    Tool(
        "math", "multiply", "Multiply two numbers",
        {"a": _digit(), "b": _digit()}, ("a", "b"), {"a": DIGITS, "b": DIGITS},
        lambda a: {"product": a["a"] * a["b"]},
        "Multiply {a} by {b}", "The product is {product}.",
    ),
    Tool(
        "shop", "price", "Price of an item",
        {"item": _string(), "currency": _string(*CURRENCIES)}, ("item",), {"item": ITEMS, "currency": CURRENCIES},
        lambda a: {"price": _mix(a) % 9 + 1},
        "What does {item} cost", "{item} costs {price}.", " in {currency}",
    ),
    Tool(
        "shop", "order", "Order an item",
        {"item": _string(), "count": _digit()}, ("item", "count"), {"item": ITEMS, "count": DIGITS},
        lambda a: {"order": _mix(a) % 90 + 10},
        "Order {count} {item}", "Order {order} for {count} {item}.",
    ),
    Tool(
        "mail", "send", "Send a mail",
        {"to": _string(), "topic": _string(*TOPICS)}, ("to", "topic"), {"to": PEOPLE, "topic": TOPICS},
        lambda a: {"sent": True},
        "Mail {to} about {topic}", "I wrote to {to} about {topic}.",
    ),
    Tool(
        "mail", "count", "Count the mails of a person",
        {"person": _string(), "unread": {"type": "boolean"}}, ("person",), {"person": PEOPLE, "unread": (True,)},
        lambda a: {"mails": _mix(a) % 20},
        "How many mails has {person}", "{person} has {mails} mails.", " not read yet",
    ),
    Tool(
        "music", "play", "Play music",
        {"genre": _string(*GENRES), "volume": _digit()}, ("genre",), {"genre": GENRES, "volume": DIGITS},
        lambda a: {"song": ("Moon", "River", "Fire", "Home")[_mix(a) % 4]},
        "Play some {genre}", "Playing {song}.", " at volume {volume}",
    ),
    Tool(
        "music", "stop", "Stop the music",
        {}, (), {},
        lambda a: {"stopped": True},
        "Stop the music", "The music has stopped.",
    ),
)  # fmt: skip

BY_NAME = {tool.full_name: tool for tool in TOOLS}
# A second call that needs the first one's answer: first tool, the answer's key, second tool, question.
CHAINS = (
    ("math-add", "sum", "math-multiply", "Add {a} and {b}, then multiply the sum by {other}"),
    ("shop-price", "price", "math-add", "Get the price of {item}, then add {other} to it"),
    ("shop-price", "price", "math-multiply", "Get the price of {item}, then multiply it by {other}"),
)
