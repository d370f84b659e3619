package conform

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func clientChecks() []check {
	return []check{
		{"clients.stalled_reads", "Is another client served while clients read no answers?", checkStalledReads},
		{"clients.stalled_writes", "Is another client served while clients send half of a request?", checkStalledWrites},
		{"clients.silent_connections", "Is another client served while 100 connections send nothing?", checkSilentConnections},
		{"clients.malformed_load", "Do limits hold for a client while others send bad messages?", checkMalformedLoad},
		{"clients.cancelled_calls", "Is another client served while 32 clients cancel their calls together?", checkCanceledCalls},
		{"clients.many_calls", "Is each of 1,000 concurrent calls on one connection served?", checkManyCalls},
		{"clients.many_connections", "Is each of 200 connections served?", checkManyConnections},
	}
}

// stalledClients is the number of connections that stall, each with stalledRequests requests.
const (
	stalledClients  = 16
	stalledRequests = 100
)

// open connects to the service without gRPC. The connection has a deadline.
func (r *runner) open(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.CallTimeout)
	defer cancel()
	var conn net.Conn
	var err error
	if r.TLS == nil {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", r.Target)
	} else {
		config := r.TLS.Clone()
		config.NextProtos = []string{"h2"}
		conn, err = (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", r.Target)
	}
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(r.CallTimeout))
}

// begin writes the requests of a client that stalls. The flow-control window for the answers is 0
// bytes, so the service must keep them. If part is less than 1, begin writes only that part of each
// message.
func begin(conn net.Conn, authority string, wire []byte, requests int, part float64) error {
	var b bytes.Buffer
	b.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&b, nil)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		return err
	}
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	message := append([]byte{0, byte(len(wire) >> 24), byte(len(wire) >> 16), byte(len(wire) >> 8), byte(len(wire))}, wire...)
	cut := int(float64(len(message)) * part)
	for i := range requests {
		headers.Reset()
		for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", authority},
			{"content-type", "application/grpc"}, {"te", "trailers"}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				return err
			}
		}
		stream := uint32(2*i + 1)
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers.Bytes(), EndHeaders: true})
		if err = errors.Join(err, framer.WriteData(stream, part >= 1, message[:cut])); err != nil {
			return err
		}
	}
	_, err := conn.Write(b.Bytes())
	return err
}

// checkOtherClient calls from another client while some stall. The check fails if a call gets no
// answer in time, or an error after the first answer. Earlier errors do not count, because a
// service may shed load. A slow service gets fewer calls, because the calls stop after CallTimeout.
func (t *trial) checkOtherClient(what string) {
	conn, err := t.connect()
	if err != nil {
		t.fault(Evidence{Fault: err.Error()})
		return
	}
	defer func() { _ = conn.Close() }()
	const calls = 100
	r, begun, shed := newRequest(t.key("day_1000")), time.Now(), 0
	for served := 0; served == 0 || served < calls && time.Since(begun) < t.CallTimeout; {
		a := t.send(t.ctx, conn, r)
		took := time.Since(begun)
		switch {
		case a.isOK():
			served++
		case a.err != nil && served == 0 && took < t.CallTimeout && sleep(t.ctx, 10*time.Millisecond):
			shed++
		default:
			t.wrong(r, a, fmt.Sprintf("another client is not served while %s: call %d, after %s", what, served+shed+1, took.Round(time.Millisecond)),
				fmt.Sprintf("OK within %s, and no error after the first OK", t.CallTimeout))
			return
		}
	}
	if shed > 0 {
		t.observe("the service rejects the first %d calls, while %s", shed, what)
	}
}

// stall opens connections and starts requests on each. It returns a function that closes the
// connections.
func (t *trial) stall(n, requests int, part float64) (done func()) {
	var all []net.Conn
	wire := wireOf(newRequest(t.key("day_1000")))
	for range n {
		conn, err := t.open(t.ctx)
		if err == nil {
			all = append(all, conn)
			if requests > 0 {
				err = begin(conn, t.Target, wire, requests, part)
			}
		}
		if err != nil {
			t.observe("a connection cannot be used: %s", err)
			break
		}
	}
	return func() {
		for _, conn := range all {
			_ = conn.Close()
		}
	}
}

func checkStalledReads(t *trial) {
	defer t.stall(stalledClients, stalledRequests, 1)()
	t.checkOtherClient("others read no answers")
}

func checkStalledWrites(t *trial) {
	defer t.stall(stalledClients, stalledRequests, 0.5)()
	t.checkOtherClient("others send half of a request")
}

func checkSilentConnections(t *trial) {
	defer t.stall(100, 0, 0)()
	t.checkOtherClient("100 connections send nothing")
}

// checkMalformedLoad sends invalid messages on the connections that valid requests use too.
func checkMalformedLoad(t *trial) {
	t.steady(minSteady)
	valid := wireOf(newRequest(t.key("day_5")))
	bad := [][]byte{valid[:len(valid)/2], bytes.Repeat([]byte{0xff}, 300), {0x08}, {0x12, 0xff, 0xff, 0xff, 0x0f}}
	var sent, answers atomic.Int64
	stop := t.background(func(i int) {
		n := sent.Add(1)
		if a := t.send(t.ctx, t.conn(i), bad[int(n)%len(bad)], grpc.ForceCodec(raw{})); a.err == nil {
			answers.Add(1)
		}
	})
	defer stop() // checkExactness may end this goroutine
	checkExactness(t, algorithms[0])
	stop()
	if n := answers.Load(); n > 0 {
		t.fault(Evidence{Fault: fmt.Sprintf("%d of %d messages that are not protobuf get an answer", n, sent.Load()),
			Expected: "an error of gRPC"})
	}
}

// checkCanceledCalls cancels calls after a short time, as Envoy does at its timeout. An immediate
// error is a choice of a service under load. A missing answer is a fault.
func checkCanceledCalls(t *trial) {
	short := newRequest(t.key("day_1000"))
	defer t.background(func(i int) {
		ctx, cancel := context.WithTimeout(t.ctx, time.Duration(50+i%8*50)*time.Microsecond)
		defer cancel()
		t.send(ctx, t.conn(i), short)
		sleep(t.ctx, 500*time.Microsecond)
	})()
	if !sleep(t.ctx, 500*time.Millisecond) {
		return
	}
	conn, err := t.connect()
	if err != nil {
		t.fault(Evidence{Fault: err.Error()})
		return
	}
	defer func() { _ = conn.Close() }()
	const calls = 50
	r, answers, rejected, begun := newRequest(t.key("day_1000")), 0, 0, time.Now()
	for answers+rejected < calls && time.Since(begun) < 2*t.CallTimeout {
		a := t.send(t.ctx, conn, r)
		switch status.Code(a.err) {
		case codes.OK:
			answers++
		case codes.DeadlineExceeded:
			t.wrong(r, a, "another client gets no answer while others give up their calls", fmt.Sprintf("an answer within %s", t.CallTimeout))
			return
		default:
			rejected++
		}
	}
	if answers < calls {
		t.observe("another client gets %d answers and %d errors in %s", answers, rejected, time.Since(begun).Round(100*time.Millisecond))
	}
}

// background calls a function repeatedly from 32 goroutines until stop is called, which may be
// called again.
func (t *trial) background(run func(i int)) (stop func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		concurrently(32, func(i int) {
			for ctx.Err() == nil {
				run(i)
			}
		})
	}()
	return func() {
		cancel()
		<-ended
	}
}

func checkManyCalls(t *trial) {
	t.callTogether(1000, "calls", func(r *request) answer { return t.send(t.ctx, t.conn(0), r) })
}

func checkManyConnections(t *trial) {
	t.callTogether(200, "connections", func(r *request) answer {
		conn, err := t.connect()
		if err != nil {
			return answer{err: err}
		}
		defer func() { _ = conn.Close() }()
		return t.send(t.ctx, conn, r)
	})
}

// callTogether makes n calls at once, and fails the check if one gets neither OK nor an error that
// is allowed.
func (t *trial) callTogether(n int64, what string, call func(*request) answer) {
	r := newRequest(t.key("day_1000"))
	all := make([]op, n)
	concurrently(len(all), func(i int) { all[i] = op{client: i, hits: 1, answer: call(r)} })
	lost := t.countErrors(all)
	if got, _ := admitted(all); got < n-lost {
		t.fault(Evidence{Fault: fmt.Sprintf("%d of %d %s get OK", got, n, what), Request: describe(r), Expected: "OK for each"})
	}
}
