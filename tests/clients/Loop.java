import java.net.DatagramPacket;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;

/** A JVM, which has many threads: blocking and non-blocking sockets of this machine, datagrams, and the proxy. */
public class Loop {
    static byte[] upper(byte[] bytes, int length) {
        return new String(bytes, 0, length).toUpperCase().getBytes();
    }

    public static void main(String[] arguments) throws Exception {
        InetAddress here = InetAddress.getByName("127.0.0.1");
        ServerSocket server = new ServerSocket(0, 200, here);
        Thread serving = new Thread(() -> {
            try {
                while (true) {
                    Socket accepted = server.accept();
                    new Thread(() -> {
                        try (accepted) {
                            byte[] bytes = new byte[4];
                            int length = accepted.getInputStream().read(bytes);
                            accepted.getOutputStream().write(upper(bytes, length));
                        } catch (Exception cause) {
                            System.out.println("java-served=" + cause);
                        }
                    }).start();
                }
            } catch (Exception closed) {
                return;
            }
        });
        serving.setDaemon(true);
        serving.start();
        int right = 0;
        for (int i = 0; i < 50; i++) {
            try (Socket client = new Socket()) {
                client.connect(new InetSocketAddress(here, server.getLocalPort()), i % 2 == 0 ? 0 : 5000);
                client.getOutputStream().write("ping".getBytes());
                right += new String(client.getInputStream().readAllBytes()).equals("PING") ? 1 : 0;
            }
        }
        System.out.println("java-tcp=" + right);

        Selector selector = Selector.open();
        List<SocketChannel> clients = new ArrayList<>();
        for (int i = 0; i < 50; i++) {
            SocketChannel client = SocketChannel.open();
            client.configureBlocking(false);
            client.register(selector, SelectionKey.OP_CONNECT);
            if (client.connect(new InetSocketAddress(here, server.getLocalPort()))) {
                client.keyFor(selector).interestOps(SelectionKey.OP_WRITE);
            }
            clients.add(client);
        }
        int ended = 0;
        right = 0;
        while (ended < 50) {
            selector.select(10_000);
            for (SelectionKey key : selector.selectedKeys()) {
                SocketChannel client = (SocketChannel) key.channel();
                if (key.isConnectable() && client.finishConnect()) {
                    key.interestOps(SelectionKey.OP_WRITE);
                } else if (key.isWritable()) {
                    client.write(new ByteBuffer[] {ByteBuffer.wrap("pi".getBytes()), ByteBuffer.wrap("ng".getBytes())});
                    key.interestOps(SelectionKey.OP_READ);
                } else if (key.isReadable()) {
                    ByteBuffer got = ByteBuffer.allocate(9);
                    right += client.read(got) == 4 ? 1 : 0;
                    ended++;
                    client.close();
                }
            }
            selector.selectedKeys().clear();
        }
        System.out.println("java-nio=" + right);

        DatagramSocket echo = new DatagramSocket(0, here);
        DatagramSocket asks = new DatagramSocket();
        asks.setSoTimeout(10_000);
        asks.send(new DatagramPacket("ping".getBytes(), 4, here, echo.getLocalPort()));
        DatagramPacket got = new DatagramPacket(new byte[9], 9);
        echo.receive(got);
        echo.send(new DatagramPacket(upper(got.getData(), got.getLength()), got.getLength(), got.getSocketAddress()));
        asks.receive(got);
        System.out.println("java-udp=" + new String(got.getData(), 0, got.getLength()));

        URI proxy = URI.create(System.getenv("https_proxy"));
        for (String name : new String[] {"pypi.org", "stranger.example.net"}) {
            try (Socket client = new Socket(proxy.getHost(), proxy.getPort())) {
                client.getOutputStream().write(("CONNECT " + name + ":443 HTTP/1.1\r\nHost: " + name + ":443\r\n\r\n").getBytes());
                byte[] status = client.getInputStream().readNBytes(12);
                System.out.println("java-" + name + "=" + new String(status).split(" ")[1]);
            }
        }
        try (Socket out = new Socket()) {
            out.connect(new InetSocketAddress("11.22.33.44", 443), 5000);
            System.out.println("java-out=out");
        } catch (java.net.ConnectException cause) {
            System.out.println("java-out=" + cause.getMessage());
        }
        System.exit(0);
    }
}
