"""asyncio: a server and many clients of this machine, datagrams, a unix socket, and a request by the proxy."""
import asyncio
import os
import urllib.parse


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, where):
        self.transport.sendto(data.upper(), where)


class Ask(asyncio.DatagramProtocol):
    def __init__(self):
        self.got = asyncio.get_running_loop().create_future()

    def datagram_received(self, data, _):
        self.got.set_result(data)


async def serve(reader, writer):
    writer.write((await reader.readline()).upper())
    await writer.drain()
    writer.close()


async def ask(*where):
    reader, writer = await (asyncio.open_connection(*where) if len(where) == 2 else asyncio.open_unix_connection(*where))
    writer.write(b"ping\n")
    return await reader.read()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    answers = await asyncio.gather(*[ask("127.0.0.1", port) for _ in range(100)])
    print("asyncio-tcp=" + str(answers.count(b"PING\n")))
    path = os.path.join(os.environ["GROUND"], "asyncio")
    await asyncio.start_unix_server(serve, path)
    print("asyncio-unix=" + (await ask(path)).decode().strip())
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Echo, ("127.0.0.1", 0))
    asked, protocol = await loop.create_datagram_endpoint(Ask, remote_addr=transport.get_extra_info("sockname"))
    asked.sendto(b"ping")
    print("asyncio-udp=" + (await protocol.got).decode())
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    print("asyncio-child=" + (await process.stdout.read()).decode().strip())
    proxy = urllib.parse.urlparse(os.environ["https_proxy"])
    for name in "pypi.org", "stranger.example.net":
        reader, writer = await asyncio.open_connection(proxy.hostname, proxy.port)
        writer.write(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n".encode())
        print(f"asyncio-{name}=" + (await reader.readline()).decode().split(" ")[1])
        writer.close()


asyncio.run(main())
