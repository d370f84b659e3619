package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A zone is a DNS server on loopback, and its records.
type zone struct {
	mu    sync.Mutex
	addrs map[string]string
}

// zoneAsked is the address of the zone in use. If it is empty, the resolver of the machine answers.
var zoneAsked atomic.Value

// The resolver is replaced before any test runs, because connections of an earlier test may still
// be made while the next one starts.
func init() {
	zoneAsked.Store("")
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if zone := zoneAsked.Load().(string); zone != "" {
			network, addr = "udp", zone
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}
}

// newZone replaces the resolver of the machine until the test ends. It must not be used in parallel
// tests.
func newZone(t *testing.T) *zone {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.Succeed(t, err)
	z := &zone{addrs: map[string]string{}}
	var serving sync.WaitGroup
	serving.Go(func() { z.serve(conn) })
	zoneAsked.Store(conn.LocalAddr().String())
	t.Cleanup(func() {
		zoneAsked.Store("")
		_ = conn.Close()
		serving.Wait()
	})
	return z
}

// set sets the address of a name. An empty address removes the name.
func (z *zone) set(name, addr string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.addrs[name] = addr
}

func (z *zone) serve(conn net.PacketConn) {
	buf := make([]byte, 1<<12)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if answer := z.answer(buf[:n]); answer != nil {
			_, _ = conn.WriteTo(answer, from)
		}
	}
}

// answer answers the question of a query, see RFC 1035.
func (z *zone) answer(query []byte) []byte {
	const header = 12
	var labels []string
	at := header
	for at < len(query) && query[at] != 0 {
		end := at + 1 + int(query[at])
		if end > len(query) {
			return nil
		}
		labels = append(labels, string(query[at+1:end]))
		at = end
	}
	if at+5 > len(query) {
		return nil
	}
	question := query[header : at+5]
	kind := binary.BigEndian.Uint16(query[at+1:])
	z.mu.Lock()
	addr := net.ParseIP(z.addrs[strings.Join(labels, ".")]).To4()
	z.mu.Unlock()
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	switch {
	case addr == nil:
		answer[3] |= 3 // no such name
	case kind == 1: // A
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		answer = append(answer, addr...)
	}
	return answer
}

// A host name is resolved again for each connection.
func TestHostNameIsResolvedForEachConnection(t *testing.T) {
	z := newZone(t)
	old := redistest.Start(t)
	_, port, _ := net.SplitHostPort(old.Addr)
	next, err := redistest.Run(net.JoinHostPort("127.0.0.2", port))
	must.Succeed(t, err)
	t.Cleanup(next.Stop)
	z.set("redis.weir.test", "127.0.0.1")
	l := newLedger(t, openAt(t, connect.Options{Addr: "redis.weir.test:" + port}), "k")
	must.Succeed(t, l.charge())
	z.set("redis.weir.test", "127.0.0.2")
	// An open connection continues after the name has changed.
	if err := l.charge(); err != nil || l.last != 2 {
		t.Errorf("%v, %d used, want 2", err, l.last)
	}
	old.Stop()
	l.awaitAnswer()
	if l.last != 1 {
		t.Errorf("%d used, want 1: this is another Redis", l.last)
	}
	// While the name does not exist, calls that must connect fail.
	z.set("redis.weir.test", "")
	disconnect(t, next)
	_ = l.charge()
	l.mustFail("no such host")
	z.set("redis.weir.test", "127.0.0.2")
	l.charged = 1
	l.awaitAnswer()
	l.verify()
}

// Nodes of a cluster may announce host names instead of addresses.
func TestHostNamesOfClusterNodesAreResolved(t *testing.T) {
	t.Parallel()
	z := newZone(t)
	redistest.Start(t).NeedSetting(t, "cluster-preferred-endpoint-type")
	c := redistest.StartCluster(t, 3, "--cluster-preferred-endpoint-type", "hostname")
	for i, server := range c.Servers {
		name := fmt.Sprintf("node%d.weir.test", i)
		z.set(name, "127.0.0.1")
		must.Succeed(t, server.Client(t).ConfigSet(t.Context(), "cluster-announce-hostname", name).Err())
	}
	for _, server := range c.Servers {
		redistest.Await(t, "the names", func(ctx context.Context) error {
			slots, err := server.Client(t).Do(ctx, "cluster", "slots").Result()
			if text := fmt.Sprint(slots); err == nil && strings.Count(text, "weir.test") < 3 {
				err = fmt.Errorf("they are not known: %s", text)
			}
			return err
		})
	}
	s := openCluster(t, c)
	l := newLedger(t, s, keysOn(c, 1, 1)[0])
	must.Succeed(t, l.charge())
	z.set("node1.weir.test", "127.0.0.3") // nobody is there
	disconnect(t, c.Servers[1])
	_ = l.charge()
	l.mustFail("connection refused")
	z.set("node1.weir.test", "127.0.0.1")
	l.awaitAnswer()
	l.verify()
}

// Sentinels may report the master by its host name.
func TestHostNameFromSentinelsIsResolved(t *testing.T) {
	w := redistest.StartSentinels(t, "mymaster", 1, redistest.Secrets{})
	_, port, _ := net.SplitHostPort(w.Master.Addr)
	sentinel := w.Sentinels[0].Client(t)
	for _, command := range [][]any{
		{"sentinel", "config", "set", "resolve-hostnames", "yes"},
		{"sentinel", "config", "set", "announce-hostnames", "yes"},
		{"sentinel", "monitor", "named", "localhost", port, 1},
	} {
		if err := sentinel.Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("run %v: %v", command, err)
		}
	}
	if master, err := sentinel.Do(t.Context(), "sentinel", "get-master-addr-by-name", "named").StringSlice(); err != nil || master[0] != "localhost" {
		t.Fatalf("the Sentinel says %q, %v", master, err)
	}
	l := newLedger(t, openAt(t, connect.Options{Type: connect.Sentinel, Master: "named", Addrs: w.Addrs()}), "k")
	for range 3 {
		l.awaitAnswer()
		disconnect(t, w.Master)
	}
	l.verify()
}
