// Fetches a URL with node:https, through a tunnel of the proxy where the variables name one, as its agents make it.
import http from 'node:http';
import https from 'node:https';
import tls from 'node:tls';

const url = new URL(process.argv[2]);
const fail = (cause) => { console.log(String(cause)); process.exit(1); };
const get = (options) => https.get(url, options, (answer) => {
    console.log(answer.statusCode);
    answer.resume().on('end', () => process.exit(answer.statusCode === 200 ? 0 : 1));
}).on('error', fail);

if (process.env.https_proxy) {
    const { hostname, port } = new URL(process.env.https_proxy);
    const to = `${url.hostname}:${url.port || 443}`;
    http.request({ host: hostname, port, method: 'CONNECT', path: to, headers: { host: to } })
        .on('connect', (answer, socket) => {
            if (answer.statusCode !== 200) {
                fail(`the proxy says ${answer.statusCode}`);
            }
            const agent = new https.Agent();
            agent.createConnection = () => tls.connect({ socket, servername: url.hostname });
            get({ agent });
        })
        .on('error', fail)
        .end();
} else {
    get({});
}
