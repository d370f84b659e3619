package failures

import (
	"bytes"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/internal/must"
)

// Clients that send partial requests, and clients that do not read responses, delay no other
// client. After they disconnect, Weir holds nothing for them.
func TestSlowClientsDelayNoOtherClient(t *testing.T) {
	t.Parallel()
	// A busy machine would otherwise shed requests, because slow clients send thousands at once.
	w := startWeir(t, rules(many), "MAX_IN_FLIGHT=100000")
	c := dial(t, w.GRPC)
	if v, err := c.ask(t.Context(), counter{"first", 0}); v != allowed {
		t.Fatal(v, err)
	}
	before, err := sizeOf(t.Context(), w)
	must.Succeed(t, err)
	const each = 50
	said := wholeRequests(t, 100)
	var slow []net.Conn
	for range each {
		for _, say := range [][]byte{nil, said[:10], said[:len(http2.ClientPreface)+20], said[:len(said)/2], said} {
			conn, err := net.Dial("tcp", w.GRPC)
			must.Succeed(t, err)
			slow = append(slow, conn)
			_ = conn.SetWriteDeadline(time.Now().Add(testTimeout))
			if _, err := conn.Write(say); err != nil {
				t.Logf("the write was cut short: %v", err) // Weir closed the connection
			}
		}
	}
	machine := watchStalls(t)
	for n := range 500 {
		begin, stalled := time.Now(), machine.stalls()
		if v, err := c.ask(t.Context(), counter{"first", n}); v != allowed {
			t.Fatalf("while others were slow: %v, %v", v, err)
		}
		// An answer takes about a millisecond; a request that waits for a slow client takes 10 s.
		if took := time.Since(begin) - (machine.stalls() - stalled); took > 5*time.Second {
			t.Errorf("an answer took %v while others were slow, beside the stalls of the machine", took)
		}
	}
	during, err := sizeOf(t.Context(), w)
	must.Succeed(t, err)
	// Each of a connection's 128 concurrent requests has a goroutine, and the connection a few:
	// fewer than 140. 256 MiB is 1 MiB for each connection.
	if grown := during.resident - before.resident; grown > 256<<20 || during.goroutines > before.goroutines+len(slow)*140 {
		t.Errorf("Weir grew from %+v to %+v for %d connections", before, during, len(slow))
	}
	for _, conn := range slow {
		_ = conn.Close()
	}
	// Ten goroutines and files may belong to the test's own connections and to the runtime.
	must.Until(t, "the slow connections have ended", func() bool {
		after, err := sizeOf(t.Context(), w)
		return err == nil && after.goroutines <= before.goroutines+10 && after.files <= before.files+10
	})
}

// wholeRequests returns the bytes of a client that sends as many requests as times and reads no
// answer.
func wholeRequests(t *testing.T, times int) []byte {
	t.Helper()
	var said, block bytes.Buffer
	said.WriteString(http2.ClientPreface)
	framer, headers := http2.NewFramer(&said, nil), hpack.NewEncoder(&block)
	must := func(err error) {
		must.Succeed(t, err)
	}
	must(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	message, err := proto.Marshal(counter{"first", 0}.request())
	must(err)
	data := append([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}, message...)
	for n := range times {
		block.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "weir"},
			{Name: ":path", Value: "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		} {
			must(headers.WriteField(f))
		}
		stream := uint32(2*n + 1)
		must(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}))
		must(framer.WriteData(stream, true, data))
	}
	return said.Bytes()
}
