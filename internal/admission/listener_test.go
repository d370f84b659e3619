package admission

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/must"
)

// While many requests are in flight, a connection that sends many is read in small steps: after
// some are answered, or after maxPause. Other connections are read as always.
func TestListenerReadsAtPaceOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := NewGate(100)
		l := &listener{gate: gate}
		l.conns.Add(1)
		here, there := net.Pipe()
		defer here.Close()
		c := &conn{Conn: there, listener: l}
		buffer := make([]byte, 1<<15)
		// read returns the most bytes that were read at a time, and how long it took until all had
		// been.
		read := func(sent int) (maximum int, took time.Duration) {
			go func() { _, _ = here.Write(make([]byte, sent)) }()
			start := time.Now()
			for got := 0; got < sent; {
				n, err := c.Read(buffer)
				must.Succeed(t, err)
				got, maximum = got+n, max(maximum, n)
			}
			return maximum, time.Since(start)
		}
		if n, took := read(5000); n != 5000 || took != 0 {
			t.Errorf("without requests: %d bytes at a time, in %v", n, took)
		}
		gate.inFlight.Store(75)
		if n, took := read(5000); n != 25*minRequestBytes || took != 0 {
			t.Errorf("with a quarter of the limit free: %d bytes at a time, in %v", n, took)
		}
		l.conns.Add(1)
		if n, took := read(5000); n != 25*minRequestBytes/2 || took != 0 {
			t.Errorf("with another connection: %d bytes at a time, in %v", n, took)
		}
		l.conns.Add(-1)
		gate.inFlight.Store(100)
		if n, took := read(20); n != 20 || took != 0 {
			t.Errorf("with little to send: %d bytes at a time, in %v", n, took)
		}
		if n, took := read(3 * minReadBytes); n != minReadBytes || took < maxPause || took > 3*maxPause {
			t.Errorf("with none answered: %d bytes at a time, in %v", n, took)
		}
		time.Sleep(2 * maxPause)
		if n, took := read(20); n != 20 || took != 0 {
			t.Errorf("with little to send again: %d bytes at a time, in %v", n, took)
		}
		read(minReadBytes)
		go func() {
			time.Sleep(10 * checkInterval)
			gate.inFlight.Store(0)
		}()
		if n, took := read(5000); n != 5000 || took < 9*checkInterval || took > 11*checkInterval {
			t.Errorf("until some are answered: %d bytes at a time, in %v", n, took)
		}
		gate.inFlight.Store(100)
		read(minReadBytes)
		go func() {
			time.Sleep(checkInterval / 2)
			for gate.inFlight.Load() > 0 {
				gate.Done()
			}
		}()
		if _, took := read(5000); took != checkInterval/2 {
			t.Errorf("once they are answered: %v, want no wait for the next check", took)
		}
		_ = c.Close()
		_ = c.Close()
		if n := l.conns.Load(); n != 0 {
			t.Errorf("%d connections, want 0", n)
		}
	})
}

// A client that has not ended its handshake does not delay the stop of a gRPC server. Otherwise
// grpc-go would wait for it for two minutes, also after Server.Stop, and close no other connection.
func TestUnfinishedHandshakesDoNotDelayTheStop(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "half a preface": "PRI * HTTP/2", "no settings": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		for how, stop := range map[string]func(*grpc.Server){"Stop": (*grpc.Server).Stop, "GracefulStop": (*grpc.Server).GracefulStop} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := grpctest.NewPipes()
					server, served := grpc.NewServer(), make(chan error)
					go func() { served <- server.Serve(NewListener(inner, NewGate(1))) }()
					client := inner.Connect()
					defer client.Close()
					go func() { _, _ = client.Write([]byte(sent)) }()
					synctest.Wait()
					began := time.Now()
					stop(server)
					if took := time.Since(began); took > 0 {
						t.Errorf("the stop took %v", took)
					}
					if err := <-served; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The end of a listener closes connections within their handshake, and those accepted at the same
// time, but no others.
func TestClosedListenerClosesUnfinishedHandshakes(t *testing.T) {
	inner := grpctest.NewPipes()
	l := NewListener(inner, NewGate(1))
	accept := func() (client, accepted net.Conn) {
		client = inner.Connect()
		accepted, err := l.Accept()
		must.Succeed(t, err)
		return client, accepted
	}
	isOpen := func(c net.Conn) bool {
		_ = c.SetReadDeadline(time.Now()) // a closed connection returns another error
		_, err := c.Read(make([]byte, 1))
		var failed net.Error
		return errors.As(err, &failed) && failed.Timeout()
	}
	unfinished, c := accept()
	_ = c.SetDeadline(time.Now().Add(time.Hour))
	established, c := accept()
	_ = c.SetDeadline(time.Time{})
	late := inner.Connect()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if isOpen(unfinished) || !isOpen(established) {
		t.Error("want only the connection within its handshake to be closed")
	}
	if l := l.(*listener); l.conns.Load() != 1 || len(l.handshakes) != 0 {
		t.Errorf("%d connections, %d of them within their handshake, want 1 and 0", l.conns.Load(), len(l.handshakes))
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || isOpen(late) {
		t.Errorf("accepted after the end: %v, want a closed connection", err)
	}
}

func BenchmarkAdmitAndDone(b *testing.B) {
	g := NewGate(1)
	for b.Loop() {
		if g.Admit(false) == nil {
			g.Done()
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	l := &listener{gate: NewGate(1)}
	for b.Loop() {
		l.busy(l.load())
	}
}
