"""A WebSocket server (RFC 6455) on port 80, and on 443 with TLS: echoes messages. Says `ready`, then a line for each connection that comes.

Arguments: the address, the certificate's file, the key's.
"""
import ssl
import sys
import threading

from websockets.sync.server import serve

address, certificate, key = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)


def echo(connection):
    print(connection.local_address[1], connection.request.headers["Host"], flush=True)
    for message in connection:
        connection.send("echo of " + message)


servers = [serve(echo, address, 80), serve(echo, address, 443, ssl=context)]
for server in servers:
    threading.Thread(target=server.serve_forever).start()
print("ready", flush=True)
