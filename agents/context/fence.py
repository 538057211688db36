"""Pure: marks around text that is data, not instruction, which the text itself cannot forge."""

from __future__ import annotations

import hashlib


def fence(label: str, text: str) -> str:
    """`text` between two marks that carry a digest of it: a text cannot contain its own end mark."""
    mark = hashlib.sha256(f"{label}\n{text}".encode(errors="surrogatepass")).hexdigest()[:12]
    return f"<data {mark} {label}>\n{text}\n</data {mark}>"
