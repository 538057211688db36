"""Real threads for races: each with its own connection, all failures shown."""

from __future__ import annotations

import threading

from django.db import connections


def in_threads(count: int, act):  # type: ignore[no-untyped-def]  # generic over the result
    results: list[object] = [None] * count
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            results[number] = act(number)
        except BaseException as error:  # shown by the assertion below
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures
    return results
