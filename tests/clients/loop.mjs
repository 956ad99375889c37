// Node: servers and clients of this machine, datagrams, a child with a channel, a worker, and a request by the proxy.
import { fork } from 'node:child_process';
import dgram from 'node:dgram';
import http from 'node:http';
import net from 'node:net';
import { Worker, isMainThread, parentPort } from 'node:worker_threads';

if (process.argv[2] === 'child') {
  process.on('message', (got, handle) => { handle?.end('handed'); process.send(got.toUpperCase(), () => process.disconnect()); });
} else if (!isMainThread) {
  parentPort.postMessage('worked');
} else {
  const listening = (server, ...where) => new Promise((done) => server.listen(...where, () => done(server.address())));
  const all = (socket) => new Promise((done, fail) => {
    let text = '';
    socket.on('data', (data) => { text += data; }).on('end', () => done(text)).on('error', fail);
  });
  const server = net.createServer((socket) => socket.once('data', (data) => socket.end(String(data).toUpperCase())));
  const { port } = await listening(server, 0, '127.0.0.1');
  const answers = await Promise.all([...Array(100)].map(() => {
    const client = net.connect(port, '127.0.0.1', () => client.write('ping'));
    return all(client);
  }));
  console.log(`node-tcp=${answers.filter((answer) => answer === 'PING').length}`);
  const web = http.createServer((_, answer) => answer.end('web'));
  const address = await listening(web, 0, 'localhost');
  console.log(`node-http=${await (await fetch(`http://localhost:${address.port}/`)).text()}`);
  const path = `${process.env.GROUND}/node`;
  await listening(net.createServer((socket) => socket.end('unix')), path);
  console.log(`node-unix=${await all(net.connect(path))}`);
  console.log(`node-worker=${await new Promise((done) => new Worker(new URL(import.meta.url)).on('message', done))}`);
  const child = fork(new URL(import.meta.url), ['child']);
  child.send('message');
  console.log(`node-child=${await new Promise((done) => child.once('message', done))}`);
  const echo = dgram.createSocket('udp4');
  echo.on('message', (data, from) => echo.send(String(data).toUpperCase(), from.port, from.address));
  await new Promise((done) => echo.bind(0, '127.0.0.1', done));
  const asks = dgram.createSocket('udp4');
  const heard = new Promise((done) => asks.once('message', (data) => done(String(data))));
  asks.send('ping', echo.address().port, '127.0.0.1');
  console.log(`node-udp=${await heard}`);
  asks.close();
  echo.close();
  const proxy = new URL(process.env.https_proxy);
  for (const name of ['pypi.org', 'stranger.example.net']) {
    const status = await new Promise((done) => {
      const asked = http.request({ host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: `${name}:443` });
      asked.on('connect', (answer, socket) => { socket.destroy(); done(answer.statusCode); }).on('response', (a) => done(a.statusCode)).end();
    });
    console.log(`node-${name}=${status}`);
  }
  const refused = await new Promise((done) => net.connect(443, '11.22.33.44').on('error', (cause) => done(cause.code)).on('connect', () => done('out')));
  console.log(`node-out=${refused}`);
  process.exit(0);
}
