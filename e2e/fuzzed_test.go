package e2e_test

import (
	"bytes"
	"context"
	wire "encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

var fuzzedRequests = flag.Int("fuzzed-requests", 30_000, "how many requests TestFuzzedRequestsNeverPanicOrLeak sends")

var fuzzedSeed = flag.Uint64("fuzzed-seed", 1, "the seed of the requests of TestFuzzedRequestsNeverPanicOrLeak")

const onceAYearEach = "domain: weir\ndescriptors:\n" +
	"  - {key: user_id, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 1000}}\n" +
	"  - {key: action, rate_limit: {algorithm: sliding_log, unit: year, requests_per_unit: 10}}\n" +
	"  - {key: path, value_to_metric: true, rate_limit: {algorithm: funnel, unit: year, requests_per_unit: 10}}\n"

// Malformed requests: random bytes, changed bytes, wrong lengths, unknown methods, half-open
// streams, streams that are reset at once, invalid frames, and connections that end within a frame.
// Weir never panics and answers other clients meanwhile. Afterwards it holds no more than before.
func TestFuzzedRequestsNeverPanicOrLeak(t *testing.T) {
	onEachStore(t, onceAYearEach, func(t *testing.T, w *harness.Weir) {
		const senders = 8
		const maxSeries = 8 * 10_000 // for each of 10,000 names, and a fixed number besides
		send := func(n int) {
			var left atomic.Int64
			left.Store(int64(n))
			var all sync.WaitGroup
			for i := range senders {
				all.Go(func() {
					f := &fuzzer{random: rand.New(rand.NewPCG(*fuzzedSeed, uint64(i))), weir: w}
					for left.Load() > 0 && t.Context().Err() == nil {
						left.Add(-int64(f.connection(t)))
					}
				})
			}
			ask := directCalls(t, w)
			all.Go(func() {
				for left.Load() > 0 {
					if _, err := ask("user_id", "well-behaved"); err != nil {
						t.Errorf("a request among those: %v", err)
						return
					}
				}
			})
			all.Wait()
		}
		// Memory that is allocated once, such as a series for each name up to the bound, is
		// allocated before.
		send(*fuzzedRequests / 3)
		before := footprintOf(t, w, footprint{goroutines: 120, files: 60})
		send(*fuzzedRequests - *fuzzedRequests/3)
		// 20 goroutines and 10 files allow for connections of the admin API and of Redis that have
		// not ended.
		after := footprintOf(t, w, footprint{goroutines: before.goroutines + 20, files: before.files + 10})
		t.Logf("%d requests, seed %#x: %v before the last two thirds, %v after", *fuzzedRequests, *fuzzedSeed, before, after)
		// If each request leaks, enough requests exceed these bounds. Half of the heap and 16 MiB
		// allow for caches and pools that are not full yet.
		if after.heap > before.heap+before.heap/2+16<<20 || after.series > maxSeries {
			t.Errorf("the footprint grew from %v to %v", before, after)
		}
		mustBeWell(t, w)
	})
}

// A footprint is the memory, goroutines and files of an idle process.
type footprint struct{ heap, goroutines, files, series int }

func (f footprint) String() string {
	return fmt.Sprintf("%.1f MB of heap, %d goroutines, %d open files, %d series", float64(f.heap)/1e6, f.goroutines, f.files, f.series)
}

// footprintOf waits until w has at most the goroutines and files of bound, and returns the
// footprint. The goroutines of a connection that has ended may take seconds to end on a busy
// machine.
func footprintOf(t *testing.T, w *harness.Weir, bound footprint) (f footprint) {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	must.Until(t, fmt.Sprintf("at most %d goroutines and %d files", bound.goroutines, bound.files), func() bool {
		f.goroutines = number(t, harness.MustGet(t, w.Debug+"/debug/pprof/goroutine?debug=1"), "goroutine profile: total ")
		files, err := os.ReadDir("/proc/" + strconv.Itoa(w.PID()) + "/fd")
		must.Succeed(t, err)
		f.files = len(files)
		return f.goroutines <= bound.goroutines && f.files <= bound.files
	})
	f.heap = number(t, harness.MustGet(t, w.Debug+"/debug/pprof/heap?gc=1&debug=1"), "# HeapAlloc = ")
	f.series = strings.Count(harness.MustGet(t, w.HTTP+"/metrics"), "\n")
	return f
}

// number returns the number in the line with that prefix.
func number(t *testing.T, text, begin string) int {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, begin); found {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			must.Succeed(t, err)
			return n
		}
	}
	t.Fatalf("no line %q", begin)
	return 0
}

// A fuzzer sends malformed requests.
type fuzzer struct {
	random *rand.Rand
	weir   *harness.Weir

	conn    net.Conn
	framer  *http2.Framer
	out     bytes.Buffer
	headers bytes.Buffer
	encoder *hpack.Encoder
	stream  uint32
}

// connection opens a connection, sends requests over it, and ends it in a random manner. It returns
// the number of requests.
func (f *fuzzer) connection(t *testing.T) int {
	if f.random.IntN(50) == 0 {
		f.json()
		return 1
	}
	conn, err := net.DialTimeout("tcp", f.weir.GRPC, testTimeout)
	if err != nil {
		t.Error(err)
		return 1 << 30
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	f.conn, f.framer, f.stream = conn, http2.NewFramer(&f.out, nil), 1
	f.framer.AllowIllegalWrites = true
	f.encoder = hpack.NewEncoder(&f.headers)
	f.out.Reset()
	f.out.WriteString(http2.ClientPreface)
	_ = f.framer.WriteSettings()
	_ = f.framer.WriteWindowUpdate(0, 1<<30)
	// The answers must be read, or the server could not write them.
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, 1<<16)
		for {
			if _, err := conn.Read(buffer); err != nil {
				return
			}
		}
	})
	sent, most := 0, 1+f.random.IntN(400)
	for sent < most {
		f.request()
		sent++
		if f.out.Len() > 16<<10 || sent == most {
			if _, err := conn.Write(f.out.Bytes()); err != nil {
				break // the server closed the connection
			}
			f.out.Reset()
		}
	}
	if f.random.IntN(4) == 0 { // without GOAWAY, and within a frame
		_, _ = conn.Write([]byte{0, 4, 0, byte(f.random.IntN(12))})
	} else if c, ok := conn.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Duration(f.random.IntN(20)) * time.Millisecond))
	reading.Wait()
	return sent
}

func (f *fuzzer) request() {
	id := f.stream
	f.stream += 2
	path, kind, method := "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "application/grpc", "POST"
	var more []string
	end := true
	message := f.mutated()
	switch f.random.IntN(16) {
	case 0:
		message = f.bytes(f.random.IntN(300))
	case 1:
		path = []string{"", "/", "//", "no slash", "/envoy.service.ratelimit.v3.RateLimitService/Nothing", "/a/b", strings.Repeat("/x", 500)}[f.random.IntN(7)]
	case 2:
		kind = []string{"", "text/html", "application/grpc+json", "application/grpc+\x00", "application/grpcx"}[f.random.IntN(5)]
	case 3:
		method = []string{"GET", "", "PRI", "post"}[f.random.IntN(4)]
	case 4:
		more = []string{"grpc-timeout", []string{"0n", "1n", "1u", "99999999H", "-1S", "x", ""}[f.random.IntN(7)]}
	case 5:
		more = []string{"grpc-encoding", []string{"gzip", "identity", "snappy", "\xff"}[f.random.IntN(4)]}
	case 6:
		more = []string{"x-bin", "!!not base64", "connection", "close", string(f.bytes(10)), string(f.bytes(10))}
	case 7:
		end = false // half-open, for as long as the connection lives
	case 8:
		message = bytes.Repeat([]byte{0x0a}, 100_000) // more than the window
	}
	f.headers.Reset()
	fields := append([]string{":method", method, ":scheme", "http", ":path", path, ":authority", "weir", "content-type", kind, "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = f.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: f.headers.Bytes(), EndHeaders: true})
	if f.random.IntN(8) == 0 { // a rapid reset
		_ = f.framer.WriteRSTStream(id, http2.ErrCode(f.random.IntN(20)))
		return
	}
	data := append(wire.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	switch f.random.IntN(20) {
	case 0:
		data[0] = byte(f.random.IntN(256)) // the flag of compression
	case 1:
		wire.BigEndian.PutUint32(data[1:], f.random.Uint32()) // a wrong length
	case 2:
		data = data[:f.random.IntN(len(data)+1)]
	case 3:
		data = append(data, data...) // two messages
	}
	for len(data) > 16<<10 {
		_ = f.framer.WriteData(id, false, data[:16<<10])
		data = data[16<<10:]
	}
	_ = f.framer.WriteData(id, end, data)
	switch f.random.IntN(300) {
	case 0:
		_ = f.framer.WriteRawFrame(http2.FrameType(f.random.IntN(256)), http2.Flags(f.random.IntN(256)), f.random.Uint32(), f.bytes(f.random.IntN(64)))
	case 1:
		_ = f.framer.WritePing(false, [8]byte{})
	case 2:
		_ = f.framer.WriteWindowUpdate(id, f.random.Uint32()>>1)
	case 3:
		f.out.Write(f.bytes(20))
	}
}

// mutated returns a request with some bytes changed, doubled or removed, or unchanged.
func (f *fuzzer) mutated() []byte {
	keys := []string{"user_id", "action", "path", "nobody's"}
	var message []byte
	for range 1 + f.random.IntN(3) {
		value := "user-" + strconv.Itoa(f.random.IntN(1000))
		if f.random.IntN(20) == 0 {
			value = string(f.bytes(f.random.IntN(200)))
		}
		entry := field(field(nil, 1, keys[f.random.IntN(len(keys))]), 2, value)
		message = field(message, 2, string(field(nil, 1, string(entry))))
	}
	message = append(field(nil, 1, "weir"), message...)
	for range f.random.IntN(4) {
		if at := f.random.IntN(len(message)); f.random.IntN(3) == 0 {
			message = append(message[:at:at], message[f.random.IntN(at+1):]...)
		} else {
			message[at] = byte(f.random.IntN(256))
		}
	}
	return message
}

// field appends a field of a protobuf message: text or a message.
func field(b []byte, number byte, text string) []byte {
	b = append(b, number<<3|2)
	b = wire.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

func (f *fuzzer) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(f.random.Uint32())
	}
	return b
}

// json sends a request by HTTP.
func (f *fuzzer) json() {
	bodies := []string{
		`{"domain":"weir","descriptors":[{"entries":[{"key":"user_id","value":"` + strconv.Itoa(f.random.IntN(1000)) + `"}]}]}`,
		`{"domain":`, `[]`, `null`, strings.Repeat("[", 10_000), `{"domain":"weir","descriptors":[{"hitsAddend":"-1"}]}`, string(f.bytes(50)),
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.weir.HTTP+"/json", strings.NewReader(bodies[f.random.IntN(len(bodies))]))
	if err != nil {
		return
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
	}
}
