package failures

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// Clients that send partial requests, and clients that do not read responses, delay no other
// client. After they disconnect, Weir holds nothing for them.
func TestSlowClientsDelayNoOtherClient(t *testing.T) {
	t.Parallel()
	w := startWeir(t, rules(many))
	c := dial(t, w.GRPC)
	if v, err := c.ask(t.Context(), counter{"first", 0}); v != allowed {
		t.Fatal(v, err)
	}
	before, err := sizeOf(t.Context(), w)
	must.Succeed(t, err)
	const each = 50
	said := wholeRequests(t, 100)
	half := said[:len(wholeRequests(t, 50))+10] // 50 requests, and a part of the next
	var slow []net.Conn
	for range each {
		for _, say := range [][]byte{nil, said[:10], said[:len(http2.ClientPreface)+20], half, said} {
			conn, err := net.Dial("tcp", w.GRPC)
			must.Succeed(t, err)
			slow = append(slow, conn)
			_ = conn.SetWriteDeadline(time.Now().Add(testTimeout))
			if _, err := conn.Write(say); err != nil {
				t.Logf("the write was cut short: %v", err) // Weir closed the connection
			}
		}
	}
	// While the whole requests are decided, Weir may shed others. After that, clients that do not
	// read their responses must take nothing of MAX_IN_FLIGHT.
	must.Until(t, "the whole requests are decided or shed", func() bool {
		m, err := harness.GetMetrics(t.Context(), w.HTTP)
		return err == nil && ended(m) >= each*(50+100)
	})
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

// ended returns the number of requests that Weir has decided or shed.
func ended(m map[string]float64) (n float64) {
	for series, value := range m {
		if strings.HasPrefix(series, "weir_requests_total{") || series == "weir_refused_requests_total" {
			n += value
		}
	}
	return n
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
