package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// SlowProxy starts a proxy in front of a Redis that adds roundTrip to each round trip. It returns its address. The proxy
// ends with the test.
func SlowProxy(tb testing.TB, addr string, roundTrip time.Duration) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	var pumps sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	pumps.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			pumps.Go(func() { carry(server, client, roundTrip) })
			pumps.Go(func() { carry(client, server, 0) })
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		pumps.Wait()
	})
	return l.Addr().String()
}

// carry copies data between connections, with a delay.
func carry(to, from net.Conn, delay time.Duration) {
	defer to.Close()
	if delay == 0 {
		_, _ = io.Copy(to, from)
		return
	}
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			_, _ = to.Write(p.data)
		}
	})
	defer writing.Wait()
	defer close(pieces)
	for {
		data := make([]byte, 1<<14)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		pieces <- piece{data[:n], time.Now().Add(delay)}
	}
}
