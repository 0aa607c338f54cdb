"""Filler text without facts: no digits and no word that names what a question is about."""

from collections.abc import Sequence
from itertools import cycle, islice

# The generic organisational paragraph of Delayed Association (CrystalCache, appendix B.2), in our words.
ORGANISATION = (
    "The organisation continued its regular operations throughout the period.",
    "Departments submitted their routine summaries on time.",
    "Staff attended the usual training sessions and planning meetings.",
    "Budgets were reviewed and small adjustments were approved.",
    "The facilities team completed the scheduled maintenance of the offices.",
    "Several working groups shared notes about their daily processes.",
    "Suppliers confirmed that deliveries would follow the normal calendar.",
    "Managers encouraged clear communication between the different units.",
    "Minutes of the meetings were distributed to everyone concerned.",
    "Overall, the work proceeded without notable interruptions.",
)

# The passage of Needle-in-a-Haystack; the paper does not say which text it uses.
TOWN = (
    "The old town wakes slowly in the early hours, when the bakers carry warm bread across the square.",
    "Fishermen mend their nets along the harbour wall and talk about the wind.",
    "A narrow street climbs from the market to the church on the hill.",
    "Children walk to school past the fountain, where pigeons gather in the sun.",
    "The shopkeepers sweep the pavement before they open their shutters.",
    "In spring the gardens behind the houses fill with the smell of lilac.",
    "An elderly teacher feeds the ducks in the park and reads the morning paper.",
    "The ferry crosses the bay, carrying letters, bicycles and sleepy travellers.",
    "Rain falls often in autumn, and the slate roofs shine like water.",
    "People say that the best coffee is served in the smallest cafe.",
    "The library keeps its windows open in summer so that readers can hear the sea.",
    "A carpenter repairs chairs in a workshop that smells of oil and pine.",
    "On market days the farmers bring apples, honey and rough linen.",
    "The tailor knows every family and remembers who married whom.",
    "Clouds drift over the valley and leave long shadows on the fields.",
    "Musicians practise on the balcony above the pharmacy after lunch.",
    "The mountain path begins behind the mill and follows a clear stream.",
    "Visitors rest on the stone bench and look at the lighthouse in the distance.",
    "A painter sets up an easel near the bridge whenever the light is soft.",
    "The baker's dog sleeps in the doorway and lifts its head for no one.",
    "In winter the stoves are lit early and smoke rises straight into the cold air.",
    "Neighbours lend one another ladders, baskets and good advice.",
    "The doctor visits the farms on foot and returns before dusk.",
    "Swallows build their nests under the eaves of the town hall.",
    "A retired captain tells stories about storms that grow larger every year.",
    "The post arrives late when the road is covered with leaves.",
    "Lanterns hang between the houses during the harvest festival.",
    "Students sit on the steps and argue about books and politics.",
    "The river bends twice before it reaches the meadow and the orchard.",
    "A gardener trims the hedges with great patience and an old pair of shears.",
    "Evening trains bring workers home, and the platform fills with greetings.",
    "The clockmaker winds the tower clock and listens to its heavy wheels.",
    "Bees hum in the clover, and the beekeeper walks among them without haste.",
    "A choir rehearses in the chapel, and the sound carries over the rooftops.",
    "The cook at the inn prepares soup from whatever the market offers.",
    "Boats rock gently in the harbour while gulls circle above them.",
    "The weaver chooses her colours by looking at the hills.",
    "Old photographs hang in the barber's window and fade a little every summer.",
    "Hikers stop at the spring to drink and to fill their bottles.",
    "The judge plays chess with the gardener and usually loses.",
    "A warm wind from the south brings dust and the scent of thyme.",
    "The apprentice learns to sharpen tools before being allowed to use them.",
    "Grandmothers sit by their doors and shell peas into wooden bowls.",
    "The theatre opens only in winter, when the nights are long.",
    "Ivy covers the walls of the abandoned brewery near the canal.",
    "A shepherd leads the flock through the gate and whistles to the dogs.",
    "The potter's shelves are full of bowls that wait for the kiln.",
    "Snow settles on the statues and makes them look surprised.",
    "Cyclists race along the embankment while walkers step aside.",
    "The innkeeper writes the menu on a board and corrects the spelling later.",
    "Morning fog hides the far shore, and the ferry sounds its horn.",
    "Acrobats once performed in the square, and people still speak of it.",
    "The bookbinder works by the window until the daylight is gone.",
    "A cat crosses the empty street and disappears behind the bakery.",
    "The orchard belongs to everyone, and everyone picks the first ripe pears.",
    "Late at night the only sound is the water against the quay.",
)


def sentences(passage: Sequence[str], n: int) -> list[str]:
    """Return the first n sentences of the passage, repeated without end."""
    return list(islice(cycle(passage), n))


def surround(fact: str, text: Sequence[str], depth: float, mentions: Sequence[str] = ()) -> list[str]:
    """Return the sentences with the fact after the share `depth` of them, and m mentions after 1/(m+1) to m/(m+1)."""
    n, result = len(text), list(text)
    positions = [round((index + 1) * n / (len(mentions) + 1)) for index in range(len(mentions))]
    for index, (position, mention) in enumerate(zip(positions, mentions, strict=True)):
        result.insert(position + index, mention)
    fact_position = round(depth * n)
    result.insert(fact_position + sum(position < fact_position for position in positions), fact)
    return result
