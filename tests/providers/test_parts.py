"""Content parts and the size of a talk, checked before any request."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from providers.catalog import profile_of
from providers.errors import RequestRefused
from providers.messages import FilePart, ImagePart, ImageUrlPart, TextPart, UserMessage
from providers.parts import check_history_size, check_modalities, read_parts
from providers.profiles import check_request
from tests.providers.conftest import ask

PNG = base64.b64encode(b"png").decode()
TEXT = {"type": "text", "text": "ok"}


def code_of(prompt: object) -> str:
    with pytest.raises(RequestRefused) as caught:
        read_parts(prompt)
    return f"{caught.value.code}|{caught.value}"


def test_a_prompt_is_a_text_or_a_list_of_parts() -> None:
    """Row 97."""
    assert read_parts("hi") == (TextPart("hi"),)
    assert read_parts(
        [
            TEXT,
            {"type": "image_url", "url": f"data:image/png;base64,{PNG}"},
            {"type": "image", "data": PNG, "media_type": "image/png"},
            {"type": "file", "data": PNG, "media_type": "application/pdf", "filename": "a.pdf"},
        ]
    )[3] == FilePart(PNG, "application/pdf", "a.pdf")


def test_the_first_bad_part_is_named_by_its_index() -> None:
    """Row 98, acceptance 8a."""
    assert "invalid_prompt_part(1)" in code_of([TEXT, {"type": "image_url", "url": "ftp://x"}, TEXT])
    assert "invalid_prompt_part(0)" in code_of([{"type": "image", "data": "@@", "media_type": "image/png"}])


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "  "},
        {"type": "text", "text": 5},
        {"type": "text"},
        {"type": "text", "text": "a", "extra": "b"},
        {"type": "audio", "data": PNG},
        {"text": "no type"},
        "a bare text",
        {"type": "image_url", "url": "data:text/html;base64,AA=="},
        {"type": "image_url", "url": "https://x y"},
        {"type": "image", "data": PNG, "media_type": "image/tiff"},
        {"type": "image", "data": "", "media_type": "image/png"},
        {"type": "file", "data": "not base64!", "media_type": "application/pdf"},
        {"type": "file", "data": PNG, "media_type": "application/zip"},
    ],
)
def test_a_part_that_nobody_can_read_is_refused(part: Any) -> None:
    assert "invalid_prompt_part(0)" in code_of([part])


def test_an_empty_list_is_no_prompt() -> None:
    """Row 99."""
    nothings: tuple[object, ...] = ([], None, {}, 7)
    for nothing in nothings:
        assert code_of(nothing).startswith("invalid_prompt|")


def test_images_need_a_model_that_sees() -> None:
    """Row 100."""
    parts = (ImageUrlPart("https://x/y.png"), ImagePart(PNG, "image/png"))
    check_modalities(parts, can=frozenset({"image"}), pdf_wire=True)
    with pytest.raises(RequestRefused, match="part 0"):
        check_modalities(parts, can=frozenset(), pdf_wire=True)


def test_a_pdf_needs_the_model_and_the_provider() -> None:
    """Row 101, acceptance 8b: OpenAI's chat takes images only, whatever the model declares."""
    message = UserMessage((FilePart(PNG, "application/pdf", "a.pdf"),))
    check_request(ask("anthropic", message), profile_of("claude-haiku-5-5"), wire="anthropic")
    declares = profile_of("claude-haiku-5-5")
    with pytest.raises(RequestRefused, match="this provider's chat takes no PDF"):
        check_request(ask("openai", message), declares, wire="openai")


def test_base64_counts_towards_the_size_of_a_talk() -> None:
    """Row 102, acceptance 8c."""
    fits = base64.b64encode(b"x" * 6_000_000).decode()
    too_much = base64.b64encode(b"x" * 6_291_456).decode()
    check_history_size(ask("anthropic", UserMessage((ImagePart(fits, "image/png"),))))
    with pytest.raises(RequestRefused, match=r"retention_limit_exceeded\(input, \d+, 8388608\)"):
        check_history_size(ask("anthropic", UserMessage((ImagePart(too_much, "image/png"),))))
