// Go: its own runtime makes the calls. Servers and clients of this machine, datagrams, a unix socket, and the proxy.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

func must[T any](got T, cause error) T {
	if cause != nil {
		fmt.Println("go-failed=", cause)
		os.Exit(1)
	}
	return got
}

func serve(listener net.Listener) {
	for {
		accepted, cause := listener.Accept()
		if cause != nil {
			return
		}
		go func() {
			bytes := make([]byte, 4)
			io.ReadFull(accepted, bytes)
			accepted.Write([]byte(strings.ToUpper(string(bytes))))
			accepted.Close()
		}()
	}
}

func ask(network, where string) string {
	client := must(net.DialTimeout(network, where, 10*time.Second))
	client.Write([]byte("ping"))
	return string(must(io.ReadAll(client)))
}

func main() {
	listener := must(net.Listen("tcp", "localhost:0"))
	go serve(listener)
	var all sync.WaitGroup
	var lock sync.Mutex
	right := 0
	for i := 0; i < 100; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			got := ask("tcp", listener.Addr().String())
			lock.Lock()
			defer lock.Unlock()
			if got == "PING" {
				right++
			}
		}()
	}
	all.Wait()
	fmt.Printf("go-tcp=%d\n", right)
	path := os.Getenv("GROUND") + "/go"
	go serve(must(net.Listen("unix", path)))
	fmt.Println("go-unix=" + ask("unix", path))
	web := must(net.Listen("tcp", "127.0.0.1:0"))
	go http.Serve(web, http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) { io.WriteString(answer, "web") }))
	plain := http.Client{Transport: &http.Transport{Proxy: nil}}
	answer := must(plain.Get("http://" + web.Addr().String() + "/"))
	fmt.Println("go-http=" + string(must(io.ReadAll(answer.Body))))
	echo := must(net.ListenPacket("udp", "127.0.0.1:0"))
	go func() {
		bytes := make([]byte, 9)
		length, from, _ := echo.ReadFrom(bytes)
		echo.WriteTo([]byte(strings.ToUpper(string(bytes[:length]))), from)
	}()
	asks := must(net.Dial("udp", echo.LocalAddr().String()))
	asks.Write([]byte("ping"))
	bytes := make([]byte, 9)
	length := must(asks.Read(bytes))
	fmt.Println("go-udp=" + string(bytes[:length]))
	fmt.Println("go-interfaces=" + must(net.InterfaceByName("lo")).Name)
	proxy := must(url.Parse(os.Getenv("https_proxy")))
	for _, name := range []string{"pypi.org", "stranger.example.net"} {
		client := must(net.Dial("tcp", proxy.Host))
		fmt.Fprintf(client, "CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n", name, name)
		status := make([]byte, 12)
		io.ReadFull(client, status)
		fmt.Printf("go-%s=%s\n", name, status[9:])
		client.Close()
	}
	_, cause := net.DialTimeout("tcp", "11.22.33.44:443", 5*time.Second)
	fmt.Printf("go-out=%v\n", errors.Is(cause, syscall.ECONNREFUSED))
}
