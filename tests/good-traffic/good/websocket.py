# SPDX-License-Identifier: Apache-2.0
"""A WebSocket server that sends back what it gets, and a client that compares: websocket.py serve PORT, websocket.py HOST PORT."""

import asyncio
import random
import sys

import websockets

LIMIT = 1 << 24


async def serve(port):
    async def echo(connection, *_):
        async for message in connection:
            await connection.send(message)

    async with websockets.serve(echo, ["0.0.0.0", "::"], port, max_size=LIMIT):
        await asyncio.Future()


async def client(host, port):
    source = random.Random(7)
    name = f"[{host}]" if ":" in host else host
    # Long and short, binary and text, and one that is split into frames.
    messages = [source.randbytes(source.randrange(1, 2000)) for _ in range(300)]
    messages += [source.randbytes(4_000_000), "text " * 1000, "\u00e4\u00f6\u00fc" * 50]
    async with websockets.connect(f"ws://{name}:{port}/chat", max_size=LIMIT) as connection:
        for message in messages:
            await connection.send(message)
            if await connection.recv() != message:
                sys.exit("a message came back changed")
        await (await connection.ping())
        await connection.send([b"a" * 1000] * 50)
        if await connection.recv() != b"a" * 50_000:
            sys.exit("a message of many frames came back changed")
    if connection.close_code != 1000:
        sys.exit(f"closed with code {connection.close_code}")
    print(len(messages), "messages came back")


if sys.argv[1] == "serve":
    asyncio.run(serve(int(sys.argv[2])))
else:
    asyncio.run(client(sys.argv[1], int(sys.argv[2])))
