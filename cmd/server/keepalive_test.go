package main

import (
	"io"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/rls"
)

// A proxy may ping its idle connection every five seconds; by default grpc-go would end it with
// GOAWAY too_many_pings. A proxy that pings every second is disconnected.
func TestKeepalivePingsAreAllowed(t *testing.T) {
	for _, c := range []struct {
		name  string
		every time.Duration
		ended bool
	}{
		{"every 5 s", 5 * time.Second, false},
		{"every second", time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				proxy := connInMemory(t)
				if ended := pingsEndConnection(t, proxy, c.every, 100); ended != c.ended {
					t.Errorf("cut off: %v, want %v", ended, c.ended)
				}
			})
		})
	}
}

// grpc-go adds up to a tenth to the age, which must not overflow.
func TestLongestConnectionAgeEndsNoConnection(t *testing.T) {
	longest := settings.Listeners{MaxConnectionAge: math.MaxInt64 - 1, MaxConnectionAgeGrace: math.MaxInt64}
	options, err := grpcOptions(&longest, zap.NewNop())
	must.Succeed(t, err)
	for range 30 { // what grpc-go adds is random
		synctest.Test(t, func(t *testing.T) {
			if pingsEndConnection(t, connInMemory(t, options...), 5*time.Second, 2) {
				t.Error("the connection ended")
			}
		})
	}
}

// pingsEndConnection pings over a connection without streams, and reports whether the server
// answers with GOAWAY.
func pingsEndConnection(t *testing.T, conn net.Conn, every time.Duration, times int) bool {
	t.Helper()
	refused := make(chan bool, 1)
	framer := http2.NewFramer(conn, conn)
	var writing sync.Mutex
	write := func(f func() error) error {
		writing.Lock()
		defer writing.Unlock()
		return f()
	}
	// The preface must precede the acknowledgement of the server's settings, which may arrive
	// first.
	writing.Lock()
	go func() {
		pongs := 0
		for pongs < times {
			frame, err := framer.ReadFrame()
			if err != nil {
				refused <- true
				return
			}
			switch frame := frame.(type) {
			case *http2.GoAwayFrame:
				refused <- true
				return
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					go func() { _ = write(framer.WriteSettingsAck) }()
				}
			case *http2.PingFrame:
				if frame.IsAck() {
					pongs++
				}
			}
		}
		refused <- false
	}()
	_, err := io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = framer.WriteSettings()
	}
	writing.Unlock()
	must.Succeed(t, err)
	for range times {
		time.Sleep(every) // in the bubble's time
		if write(func() error { return framer.WritePing(false, [8]byte{1}) }) != nil {
			break
		}
	}
	return <-refused
}

// processWith returns a process with the parts that a gRPC server needs.
func processWith(t *testing.T, gate *admission.Gate) *process {
	t.Helper()
	stats := ratelimitstats.New(telemetry.NewMetrics("test").Registry, ratelimitstats.Options{})
	return &process{environment: environment{panicked: unexpectedPanic(t)}, gate: gate, ready: &readiness{}, stats: stats}
}

// connInMemory returns a connection to a new gRPC server, both of which end with the test. It needs
// no network, so that it can be in a bubble of synctest.
func connInMemory(t *testing.T, options ...grpc.ServerOption) net.Conn {
	t.Helper()
	_, client := serverInMemory(t, rls.Options{}, options...)
	return client
}

// serverInMemory returns a new gRPC server and a connection to it, as [connInMemory] does.
func serverInMemory(t *testing.T, o rls.Options, options ...grpc.ServerOption) (*grpc.Server, net.Conn) {
	t.Helper()
	l := grpctest.NewPipes()
	service := rls.New(decide.New(func() *descriptors.Rules { return &descriptors.Rules{} }, limiterstest.NewReference(), decide.Options{}), o)
	server := processWith(t, admission.NewGate(1)).newGRPC(service, options...)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := l.Connect()
	t.Cleanup(func() {
		_ = client.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return server, client
}

// unexpectedPanic returns a report that fails the test.
func unexpectedPanic(t *testing.T) recovery.Report {
	return func(where string, value any) { t.Errorf("%s panicked: %v", where, value) }
}
