"""What each customer owes."""

from tally import money


def totals(entries):
    """Cents by customer, the customers in alphabetical order."""
    owed = {}
    for entry in entries:
        owed[entry.customer] = owed.get(entry.customer, 0) + entry.cents
    return dict(sorted(owed.items()))


def as_text(entries):
    """One line for each customer."""
    return "\n".join(f"{customer}: {money.show(cents)}" for customer, cents in totals(entries).items())
