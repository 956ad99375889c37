"""Fetches a URL, or has a message echoed, by the client that is named; ends with 1 and the client's own words where it can't."""
import sys

client, url = sys.argv[1:]


def requests():
    import requests

    requests.get(url, timeout=20).raise_for_status()


def aiohttp():
    import asyncio

    import aiohttp

    async def fetch():
        async with aiohttp.ClientSession(trust_env=True, raise_for_status=True) as session:
            async with session.get(url) as answer:
                await answer.read()

    asyncio.run(fetch())


def websockets():
    from websockets.sync.client import connect

    with connect(url) as socket:
        socket.send("ping")
        assert socket.recv(timeout=20) == "echo of ping"


def websocket_client():
    import websocket

    socket = websocket.create_connection(url, timeout=20)
    socket.send("ping")
    assert socket.recv() == "echo of ping"
    socket.close()


try:
    {"requests": requests, "aiohttp": aiohttp, "websockets": websockets, "websocket-client": websocket_client}[client]()
except Exception as cause:
    print(f"{type(cause).__name__}: {cause}")
    sys.exit(1)
