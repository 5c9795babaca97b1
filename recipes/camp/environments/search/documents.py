"""The document set: invented towns, people, companies and products, whose facts lead from one to another.

It is the same in every process, and no model has read it anywhere: an answer has to be found.
"""

import random
from dataclasses import dataclass, field

COUNTS = {"town": 400, "person": 1500, "company": 500, "product": 900}

# What is told of each kind, in some of several ways. A document begins with the first of these.
SENTENCES = {
    "town": {
        "region": ("It is a town in {}.", "This town belongs to {}."),
        "river": ("The river {} flows through it.", "It lies on the river {}."),
        "founded": ("It was founded in {}.", "Its charter dates from {}, when it was founded."),
        "population": ("It has {} inhabitants.", "At the last count, {} people lived here."),
        "mayor": ("The mayor is {}.", "The town hall is run by {}, its mayor."),
    },
    "person": {
        "profession": ("This person works as {}.", "By training this person is {}."),
        "born": ("The year of birth is {}.", "Born in {}, as the registers say."),
        "birthplace": ("The place of birth is {}.", "The family comes from {}, where this person was born."),
        "employer": ("The employer is {}.", "The salary comes from {}, the employer."),
    },
    "company": {
        "industry": ("This company is active in {}.", "It is a company known for {}."),
        "founded": ("It was founded in {}.", "Its first year was {}, when it was founded."),
        "employees": ("It has {} employees.", "On the payroll are {} employees."),
        "seat": ("The seat of the company is in {}.", "Letters go to its seat in {}."),
        "head": ("The head of the company is {}.", "It is led by {}, who is its head."),
    },
    "product": {
        "type": ("This product is {}.", "The product is sold as {}."),
        "introduced": ("It was introduced in {}.", "It has been on sale since {}, when it was introduced."),
        "weight": ("It weighs {} grams.", "The scales show {} grams."),
        "maker": ("It is made by {}.", "The maker is {}, as the label says."),
        "designer": ("It was designed by {}.", "The drawings are by {}, its designer."),
    },
}  # fmt: skip

LINKS = {
    "town": {"mayor": "person"},
    "person": {"birthplace": "town", "employer": "company"},
    "company": {"seat": "town", "head": "person"},
    "product": {"maker": "company", "designer": "person"},
}

_REMARKS = (
    "There is little else in the archives.",
    "An older entry was lost in a fire.",
    "The entry was revised twice.",
    "Pictures are kept in the annex.",
)
_PROFESSIONS = ("a surveyor", "a baker", "an engineer", "a physician", "a teacher", "a chemist", "a painter",
                "a lawyer", "a printer", "a botanist")  # fmt: skip
_INDUSTRIES = ("glass making", "shipping", "paper", "clockwork", "textiles", "optics", "brewing", "mining")
_TYPES = ("a lantern", "a compass", "a kettle", "a sewing machine", "a bicycle", "a camera", "a barometer", "a stove")
_FORMS = ("Works", "Brothers", "Foundry", "Union", "Trading", "Guild")
_MODELS = ("Mark", "Model", "Series", "Type")


@dataclass
class Document:
    """A document.

    Attributes:
        id: to open it by.
        kind: of what it is about, a key of ``SENTENCES``.
        facts: by the name of the relation; a linked one is another document's title.
    """

    id: str
    kind: str
    title: str
    facts: dict[str, str] = field(default_factory=dict)
    text: str = ""


def make_documents() -> dict[str, Document]:
    """All documents by their titles."""
    rng = random.Random("search documents 1")
    names = _names(rng)
    titles = {
        "town": [next(names) for _ in range(COUNTS["town"])],
        "person": _pairs(rng, [next(names) for _ in range(90)], [next(names) for _ in range(160)], COUNTS["person"]),
        "company": _pairs(rng, [next(names) for _ in range(250)], _FORMS, COUNTS["company"]),
        "product": _pairs(
            rng, [next(names) for _ in range(400)], [f"{model} {n}" for model in _MODELS for n in range(10, 30)],
            COUNTS["product"],
        ),
    }  # fmt: skip
    regions, rivers = [next(names) for _ in range(25)], [next(names) for _ in range(120)]

    def plain_fact(relation: str) -> str:
        match relation:
            case "region":
                return rng.choice(regions)
            case "river":
                return rng.choice(rivers)
            case "profession":
                return rng.choice(_PROFESSIONS)
            case "industry":
                return rng.choice(_INDUSTRIES)
            case "type":
                return rng.choice(_TYPES)
            case "population":
                return str(rng.randrange(900, 90000))
            case "employees":
                return str(rng.randrange(12, 9000))
            case "weight":
                return str(rng.randrange(150, 9000))
            case _:
                return str(rng.randrange(1500, 1990))  # a year

    numbers = rng.sample(range(1000, 10000), sum(COUNTS.values()))
    documents = {}
    for kind, relations in SENTENCES.items():
        for title in titles[kind]:
            document = Document(f"D{numbers.pop()}", kind, title)
            for relation in relations:
                linked = LINKS[kind].get(relation)
                document.facts[relation] = rng.choice(titles[linked]) if linked else plain_fact(relation)
            document.text = _text(rng, document)
            documents[title] = document
    return documents


def _text(rng: random.Random, document: Document) -> str:
    told = [rng.choice(SENTENCES[document.kind][relation]).format(fact) for relation, fact in document.facts.items()]
    others = [*told[1:], rng.choice(_REMARKS)]
    rng.shuffle(others)
    return f"{document.title}. {' '.join([told[0], *others])}"


def _names(rng: random.Random):
    """Words that there are not, each once."""
    seen = set()
    while True:
        syllables = [rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.choice((2, 3)))]
        name = "".join(syllables).capitalize() + rng.choice("lmnrst")
        if name not in seen:
            seen.add(name)
            yield name


def _pairs(rng: random.Random, first: list[str], second: list[str], count: int) -> list[str]:
    return rng.sample([f"{one} {other}" for one in first for other in second], count)
