"""A Mission for the cluster, submitted and followed with the SDK: one line of JSON an Event, the results in the last one.

    docker compose run --rm -T --entrypoint python3 coordinator submit.py NAME ITEMS STEPS PACE_S

Run again with the same arguments it submits nothing new: it reads the same log from its beginning.
"""

from __future__ import annotations

import asyncio
import json
import sys

from treadle.coordinator import Client, MissionSpec, WorkSpec
from treadle.shared.names import name_of


def mission_of(name: str, items: int, steps: int, pace_s: float) -> MissionSpec:
    inputs = {"steps": steps, "pace_s": pace_s}
    work = [WorkSpec(id=f"chain-{number}", capability="cluster.chain", inputs=inputs) for number in range(items)]
    return MissionSpec(
        id=name, objective="chains, through whatever happens to the cluster", account="example", work=work
    )


def say(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


async def main(name: str, items: int, steps: int, pace_s: float) -> None:
    async with Client.connect(actor="coordinator") as client:
        mission = await client.submit(mission_of(name, items, steps, pace_s))
        async for event in mission.events():
            item = name_of(event.item) if event.item else ""
            say(seq=event.seq, kind=event.kind, item=item, by=event.by, at_s=event.at_ms / 1_000)
        say(results=await mission.results(timeout=60))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
