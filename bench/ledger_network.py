"""The ledger with 2.4 ms of network between, beside the same ledger without it in the same run."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bench.ledger import ROUNDS, World, make_world, our_pairs, postgres, raw_pairs, use_database
from bench.measured import Measured

ONE_WAY_SECONDS = 0.0012
CLIENTS = 8


def measure() -> Iterable[Measured]:
    with postgres() as url, slow_network(url) as far:
        world = make_world(spread=False)
        near_pairs, far_pairs, raw = _in_turns(url, far, world)
        use_database(url)
        yield Measured(
            what=f"hot, {CLIENTS} connections, 2.4 ms away; beside no network",
            ours=f"{far_pairs:,.0f}/s",
            theirs=f"{near_pairs:,.0f}/s",
            ratio=far_pairs / near_pairs,
        )
        yield Measured(
            what=f"hot, {CLIENTS} connections, 2.4 ms away; beside raw, as far",
            ours=f"{far_pairs:,.0f}/s",
            theirs=f"{raw:,.0f}/s",
            ratio=far_pairs / raw,
            aim="at least 0.5",
        )


def _in_turns(url: str, far: str, world: World) -> tuple[float, float, float]:
    nears, fars, raws = [], [], []
    for _ in range(ROUNDS):
        raws.append(raw_pairs(far, world, clients=CLIENTS))
        use_database(far)
        fars.append(our_pairs(world, clients=CLIENTS)[0])
        use_database(url)
        nears.append(our_pairs(world, clients=CLIENTS)[0])
    return median(nears), median(fars), median(raws)


@contextmanager
def slow_network(url: str) -> Iterator[str]:
    """The same database behind a proxy that holds every byte back for half a round trip."""
    parts = urlsplit(url)
    context = multiprocessing.get_context("fork")
    ready = context.SimpleQueue()
    proxy = context.Process(target=_proxy, args=(parts.hostname, parts.port or 5432, ready), daemon=True)
    proxy.start()
    port = ready.get()
    user = f"{parts.username}@" if parts.username else ""
    try:
        yield urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{port}"))
    finally:
        proxy.kill()
        proxy.join()


def _proxy(host: str, port: int, ready: Any) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(65_536):
            loop.call_later(ONE_WAY_SECONDS, writer.write, data)
        loop.call_later(ONE_WAY_SECONDS, writer.close)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(forward(reader, far_writer), forward(far_reader, writer))

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ready.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    try:
        asyncio.run(run())
    finally:
        os._exit(0)
