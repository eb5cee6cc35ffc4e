"""A small grammar of telephone dialogues: eight topics, some 300 words and invented names.

A topic is a row of turns, ``A:`` the caller and ``B:`` the one who answers.  Each turn has
variants, and ``{slots}`` that are filled once a dialogue: what the caller says comes back in
the answers, word for word.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Sequence, Set, Tuple

import numpy as np

from icefall_ctx.corpora.invented_names import Name, NameSource

DIGITS = "zero one two three four five six seven eight nine".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
MONTHS = ("january february march april may june july august september october november "
          "december").split()  # fmt: skip
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
HOURS = "one two three four five six seven eight nine ten eleven twelve".split()
MINUTES = ("fifteen", "twenty", "thirty", "forty five", "fifty")
CLOSED = {
    "street": ("river street", "church lane", "garden road", "hill street", "market square",
               "bridge road", "forest lane", "castle street", "mill road", "harbour lane",
               "orchard way", "meadow drive", "tower hill", "lake avenue"),
    "city": "dover leeds boston denver dublin oxford houston lisbon vienna geneva".split(),
    "colour": "red blue green yellow black white brown grey orange purple".split(),
    "item": ("bag coat lamp clock camera bicycle guitar radio table chair mirror "
             "kettle printer tent").split(),
    "hotel": ("grand hotel", "park hotel", "royal hotel", "station hotel", "garden hotel",
              "palace hotel"),
    "place": ("library", "museum", "hospital", "market", "theatre", "school", "harbour",
              "airport", "stadium", "post office"),
    "doctor": ("dentist", "doctor", "nurse", "eye doctor"),
    "meal": ("breakfast", "lunch", "dinner"),
    "food": "soup salad chicken fish rice pasta bread cheese pizza curry".split(),
    "drink": "coffee tea water juice milk lemonade".split(),
    "turn": ("left", "right"),
    "reason": ("a broken tooth", "a bad cough", "a sore knee", "a new pair of glasses",
               "a blood test"),
}  # fmt: skip

# {number} {code} {time} {date} {count} are drawn below; {name} and {friend} are invented
TOPICS: Dict[str, Sequence[Tuple[str, ...]]] = {
    "hotel": (
        ("B: {hotel} good morning how can i help", "B: good afternoon this is the {hotel}"),
        ("A: i would like a room for {count} nights from {day}",
         "A: can i book a room from {day} for {count} nights"),
        ("B: {count} nights from {day}", "B: a room from {day} for {count} nights of course"),
        ("A: and {meal} please we arrive at {time}", "A: we arrive at {time} and want {meal}"),
        ("B: {meal} and you arrive at {time}", "B: at {time} with {meal} that is fine"),
        ("A: my number is {number}", "A: you can call me on {number}"),
        ("B: i have {number} for {count} nights from {day} with {meal}",
         "B: so {number} and a room from {day} at the {hotel}"),
    ),
    "parcel": (
        ("B: lost parcels how can i help", "B: parcel service good morning"),
        ("A: i lost a parcel with a {colour} {item}",
         "A: my parcel did not come it is a {colour} {item}"),
        ("B: a {colour} {item}", "B: so we look for a {colour} {item}"),
        ("A: the code is {code} and it was sent on {day} to {city}",
         "A: it was sent to {city} on {day} the code is {code}"),
        ("B: code {code} sent on {day} to {city}", "B: that is {code} to {city} on {day}"),
        ("A: please bring it to {number} {street}", "A: i live at {number} {street}"),
        ("B: we bring the {colour} {item} to {number} {street}",
         "B: {number} {street} and the code is {code}"),
    ),
    "doctor": (
        ("B: good morning this is the {doctor}", "B: the {doctor} how can i help"),
        ("A: i need an appointment for {reason}", "A: i have {reason} can i come on {day}"),
        ("B: for {reason} yes", "B: you have {reason} i see"),
        ("A: can i come on {day} at {time}", "A: is {day} at {time} free"),
        ("B: {day} at {time} with the {doctor}", "B: so {day} at {time} for {reason}"),
        ("A: my number is {number}", "A: please write down my number {number}"),
        ("B: {number} and we see you on {day} at {time}",
         "B: thank you {number} {day} at {time}"),
    ),
    "directions": (
        ("A: how do i get to the {place}", "A: excuse me where is the {place}"),
        ("B: the {place} is on {street}", "B: you want the {place} on {street}"),
        ("A: i am on {street2} now", "A: i stand on {street2} where do i turn"),
        ("B: from {street2} turn {turn} and walk {count} blocks",
         "B: go {turn} on {street2} then {count} blocks"),
        ("A: {turn} and then {count} blocks to {street}", "A: so i turn {turn} on {street2}"),
        ("B: yes {turn} then {count} blocks and the {place} is on {street}",
         "B: right from {street2} it is {count} blocks to the {place}"),
    ),
    "order": (
        ("B: hello what can i bring you", "B: good evening your order please"),
        ("A: {count} times {food} and {drink} please", "A: i want {food} with {food2} and {drink}"),
        ("B: {food} and {drink}", "B: so {drink} and the {food}"),
        ("A: and also {food2} for {time}", "A: bring the {food2} at {time}"),
        ("B: {food2} at {time} and {food}", "B: at {time} the {food2} with {drink}"),
        ("A: we live at {number} {street}", "A: the address is {number} {street}"),
        ("B: {food} {food2} and {drink} to {number} {street}",
         "B: so {number} {street} at {time}"),
    ),
    "train": (
        ("B: train tickets good morning", "B: this is the station how can i help"),
        ("A: a ticket from {city} to {city2} on {day}",
         "A: i want to go to {city2} from {city} on {day}"),
        ("B: from {city} to {city2} on {day}", "B: {day} to {city2} i see"),
        ("A: at {time} for {count} people", "A: we are {count} people and go at {time}"),
        ("B: {count} people at {time}", "B: the train to {city2} at {time} for {count}"),
        ("A: the code of my card is {code}", "A: my card has the code {code}"),
        ("B: {code} and {count} tickets to {city2}",
         "B: code {code} from {city} at {time} on {day}"),
    ),
    "meeting": (
        ("A: we have to move the meeting to {day}", "A: is the meeting on {day} in {city}"),
        ("B: the meeting is on {day} then", "B: on {day} in {city}"),
        ("A: it is on the {date} at {time}", "A: the {date} at {time} is better"),
        ("B: the {date} at {time}", "B: so it is {day} the {date}"),
        ("A: {count} people come from {city}",
         "A: we bring {count} people and the {colour} {item}"),
        ("B: {count} people on {day} at {time} in {city}",
         "B: i write {day} the {date} at {time} for {count} people"),
    ),
    "taxi": (
        ("B: taxi service where are you", "B: taxi how can i help"),
        ("A: i need a taxi at {number} {street}", "A: please come to {number} {street}"),
        ("B: {number} {street}", "B: a taxi to {number} {street} yes"),
        ("A: i go to the {place} in {city} at {time}", "A: at {time} i must be at the {place}"),
        ("B: to the {place} at {time}", "B: from {street} to the {place} in {city}"),
        ("A: we are {count} people with a {colour} {item}",
         "A: i have a {colour} {item} with me"),
        ("B: the {place} at {time} with a {colour} {item}",
         "B: so {count} people from {number} {street}"),
    ),
}  # fmt: skip
NAME_TURNS = (
    ("A: my name is {name}", "A: this is {name} speaking", "A: the name is {name}"),
    ("B: hello {name}", "B: thank you {name} one moment", "B: is that {name}"),
)
SPELLING_TURNS = (
    ("B: how do you spell that", "B: can you spell the name please"),
    ("A: {letters}", "A: that is {letters}"),
)
FRIEND_TURNS = (
    ("A: please tell {friend} too", "A: {friend} comes with me", "A: ask {friend} about it"),
    ("B: i will tell {friend}", "B: {friend} and {name} then", "B: so {friend} is with you"),
)
CLOSING_TURNS = (
    ("A: thank you and goodbye", "A: yes that is right thank you", "A: very good goodbye"),
    ("B: goodbye", "B: thank you for your call", "B: you are welcome goodbye"),
)
NAMED_CLOSING = ("B: goodbye {name}", "B: thank you for your call {name}", "B: see you {name}")
CORRECTIONS = (
    ("B: did you say {wrong}", "B: was that {wrong}"),
    ("A: no i said {right}", "A: no {right}", "A: not {wrong} but {right}"),
    ("B: sorry {right} then", "B: {right} i see"),
)
NEW_WORD_TURNS = (
    "this is {name} speaking", "my name is {name}", "please tell {name} about it",
    "i want to speak with {name}", "is {name} there", "{name} comes with me on {day}",
    "the room is for {name}", "goodbye {name} and thank you", "i live with {name} in {city}",
    "{name} has a {colour} {item}", "we see {name} at {time}", "did you say {name}",
)  # fmt: skip
TWO_NAME_TURNS = (
    "{name} and {friend}", "{name} comes with {friend}", "not {name} but {friend}",
    "please tell {name} and {friend}", "{friend} is with {name}", "from {name} to {friend}",
    "{name} {friend} speaking", "ask {name} {friend} about it",
)  # fmt: skip


class DialogueTurn(NamedTuple):
    """``channel`` 0 is the caller; ``text`` as written, ``spoken`` as the synthesiser wants it."""

    channel: int
    text: str
    spoken: str


class Slot(NamedTuple):
    text: str
    spoken: str


def pick(rng: np.random.Generator, choices: Sequence[str]) -> str:
    return choices[int(rng.integers(len(choices)))]


def digits(rng: np.random.Generator, count: int) -> str:
    return " ".join(pick(rng, DIGITS) for _ in range(count))


def draw_slots(rng: np.random.Generator) -> Dict[str, Slot]:
    """One value for every slot but the names."""
    values = {key: pick(rng, choices) for key, choices in CLOSED.items()}
    for key in ("street", "city", "food"):
        others = [choice for choice in CLOSED[key] if choice != values[key]]
        values[key + "2"] = pick(rng, others)
    values["day"] = pick(rng, DAYS)
    values["number"] = digits(rng, int(rng.integers(2, 5)))
    values["code"] = digits(rng, int(rng.integers(3, 6)))
    values["count"] = pick(rng, DIGITS[2:])
    values["time"] = f"{pick(rng, HOURS)} {pick(rng, MINUTES)}"
    values["date"] = f"{pick(rng, ORDINALS)} of {pick(rng, MONTHS)}"
    return {key: Slot(value, value) for key, value in values.items()}


def name_slot(name: Name) -> Slot:
    return Slot(name.spelling, name.spoken)


def letters_slot(name: Name) -> Slot:
    """The letters one by one; a comma keeps each apart and stops "a" from being an article."""
    return Slot(" ".join(name.spelling), ", ".join(name.spelling.upper()))


def render_turn(template: str, slots: Dict[str, Slot]) -> DialogueTurn:
    """``A: my {item}`` and the slots -> a turn."""
    side, _, body = template.partition(": ")
    text = body.format_map({key: slot.text for key, slot in slots.items()})
    spoken = body.format_map({key: slot.spoken for key, slot in slots.items()})
    return DialogueTurn("AB".index(side), text, spoken)


def draw_dialogue(
    rng: np.random.Generator, names: NameSource, name_share: float, spelling_share: float
) -> List[DialogueTurn]:
    """One dialogue.

    Args:
      names: gives names nobody had before; they come back in later turns.
      name_share: how many of the dialogues have a name.
      spelling_share: how many of those spell it.
    """
    topic = TOPICS[pick(rng, sorted(TOPICS))]
    slots = draw_slots(rng)
    templates = [pick(rng, variants) for variants in topic]
    middle = 2 if templates[0].startswith("A") else 1
    if rng.random() < 0.35:
        templates += _correction(rng, templates, slots)
    closing = [pick(rng, variants) for variants in CLOSING_TURNS]
    if rng.random() < name_share:
        name = names.draw()
        slots["name"], slots["letters"] = name_slot(name), letters_slot(name)
        extra = [pick(rng, variants) for variants in NAME_TURNS]
        if rng.random() < spelling_share:
            extra[1:1] = [pick(rng, variants) for variants in SPELLING_TURNS]
        templates[middle:middle] = extra
        if rng.random() < 0.4:
            slots["friend"] = name_slot(names.draw())
            templates += [pick(rng, variants) for variants in FRIEND_TURNS]
        closing[1] = pick(rng, NAMED_CLOSING)
    return [render_turn(template, slots) for template in templates + closing]


def _correction(
    rng: np.random.Generator, templates: Sequence[str], slots: Dict[str, Slot]
) -> List[str]:
    """Three turns in which one value is taken wrongly and put right."""
    used = set(re.findall(r"{(\w+)}", " ".join(templates)))
    key = pick(rng, sorted(used & {"day", "time", "city", "colour", "item", "street", "food"}))
    other = slots[key]
    while other.text == slots[key].text:
        other = draw_slots(rng)[key]
    slots["right"], slots["wrong"] = slots[key], other
    return [pick(rng, variants) for variants in CORRECTIONS]


def draw_new_word_turn(rng: np.random.Generator, name: Name, channel: int) -> DialogueTurn:
    """One sentence with ``name`` in it."""
    slots = draw_slots(rng)
    slots["name"] = name_slot(name)
    return render_turn("AB"[channel] + ": " + pick(rng, NEW_WORD_TURNS), slots)


def draw_name_turn(rng: np.random.Generator, names: NameSource, channel: int) -> DialogueTurn:
    """One sentence with a new name in it, half of the time with two."""
    if rng.random() < 0.5:
        return draw_new_word_turn(rng, names.draw(), channel)
    slots = {"name": name_slot(names.draw()), "friend": name_slot(names.draw())}
    return render_turn("AB"[channel] + ": " + pick(rng, TWO_NAME_TURNS), slots)


def vocabulary() -> Set[str]:
    """Every word of the grammar but the names; the letters of spelt names are words too."""
    texts = [v for topic in TOPICS.values() for variants in topic for v in variants]
    for group in (NAME_TURNS, SPELLING_TURNS, FRIEND_TURNS, CLOSING_TURNS, CORRECTIONS):
        texts += [variant for variants in group for variant in variants]
    texts += list(NAMED_CLOSING) + list(NEW_WORD_TURNS) + list(TWO_NAME_TURNS)
    texts += [choice for choices in CLOSED.values() for choice in choices]
    texts += DIGITS + DAYS + MONTHS + ORDINALS + HOURS + list(MINUTES) + ["of"]
    words = re.sub(r"\{\w+\}|[AB]:", " ", " ".join(texts)).split()
    return set(words) | set("abcdefghijklmnopqrstuvwxyz")
