"""Amounts in whole cents."""


def parse(text):
    """`"12.50"` as 1250 cents."""
    sign = -1 if text.startswith("-") else 1
    whole, _, cents = text.lstrip("-").partition(".")
    if not whole.isdigit() or len(cents) > 2 or (cents and not cents.isdigit()):
        raise ValueError(f"not an amount: {text!r}")
    return sign * (int(whole) * 100 + int(cents.ljust(2, "0")))


def show(cents):
    """1250 cents as `"12.50"`."""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"
