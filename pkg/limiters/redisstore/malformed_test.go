package redisstore

import (
	"bufio"
	"net"
	"sync"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// answering returns the address of a server that replies to one command, and rejects those with
// which go-redis opens and checks a connection.
func answering(t *testing.T, command, reply string) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				commands := bufio.NewScanner(conn)
				for commands.Scan() {
					switch commands.Text() {
					case "hello", "ping":
						_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
					case command:
						_, _ = conn.Write([]byte(reply))
					}
				}
			})
		}
	})
	return listener.Addr().String()
}

// A message of a wrong form ended the process, because go-redis panics on it.
func TestMalformedMessagesEndTheSubscription(t *testing.T) {
	t.Parallel()
	for _, reply := range []string{
		"*0\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n", "*2\r\n$4\r\npong\r\n:1\r\n", "*3\r\n$7\r\nmessage\r\n:1\r\n$1\r\na\r\n",
	} {
		s := openAt(t, connect.Options{Addr: answering(t, "subscribe", reply), Timeout: longTimeout})
		p, err := s.PubSub("resets")
		must.Succeed(t, err)
		received := func(text []byte) { t.Errorf("%q: received %q", reply, text) }
		err = p.Receive(t.Context(), func() { t.Errorf("%q: connected", reply) }, received)
		if err == nil {
			t.Errorf("%q: no error", reply)
		}
	}
}
