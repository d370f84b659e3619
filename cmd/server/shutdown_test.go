package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/rls"
)

func TestSIGTERMDrainsAndExitsWithZero(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := startServer(t, "CONFIG_PATH="+path, "DRAIN_DELAY=1h")
	ctx, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	watch, err := s.health.Watch(ctx, &healthv1.HealthCheckRequest{Service: "ratelimit"})
	must.Succeed(t, err)
	awaitServing(t, watch)
	must.Succeed(t, s.cmd.Process.Signal(syscall.SIGTERM))
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("%v, %v: want a server that drains to be not serving", r, err)
	}
	if code, _ := s.get("/healthcheck"); code != 500 {
		t.Errorf("/healthcheck while draining: %d, want 500", code)
	}
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("a server that drains does not answer: %d", got)
	}
	// The second signal ends the drain delay. Requests in flight would still end.
	unwatch()
	s.stop()
}

func TestStopLogsTheNameOfItsSignal(t *testing.T) {
	t.Parallel()
	for signal, name := range map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "CONFIG_PATH="+rulesFile(t))
			must.Succeed(t, s.cmd.Process.Signal(signal))
			if line, _ := s.log.await(t, 0, `"stopping"`); !strings.Contains(line, `"signal":"`+name+`"`) {
				t.Errorf("want the signal %s: %s", name, line)
			}
		})
	}
}

// Streams that never end do not delay the stop, and the server saves its counters. The first
// SIGTERM starts the drain delay, and the second ends it.
func TestOpenStreamsDoNotDelayTheStop(t *testing.T) {
	t.Parallel()
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "DRAIN_DELAY=1h", "STOP_TIMEOUT=1h", "MEMORY_SNAPSHOT="+snapshot)
	watch, err := s.health.Watch(context.Background(), &healthv1.HealthCheckRequest{Service: "ratelimit"})
	must.Succeed(t, err)
	awaitServing(t, watch)
	conn, err := net.Dial("tcp", s.address("grpc"))
	must.Succeed(t, err)
	partialRequests(t, conn, 1)
	s.remaining("alice")
	s.terminate(1)
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("%v, %v: want a server that drains to be not serving", r, err)
	}
	s.remaining("alice") // the server still answers
	s.stop()
	if again := startServer(t, "CONFIG_PATH="+rulesFile(t), "MEMORY_SNAPSHOT="+snapshot).remaining("alice"); again != 0 {
		t.Errorf("got %d remaining of 2 after 2 hits, want 0: the usage is lost", again)
	}
}

// A request in flight is answered after SIGTERM, or a further SIGTERM ends the wait for it.
func TestSIGTERMWaitsForRequestsInFlight(t *testing.T) {
	t.Parallel()
	for name, answered := range map[string]bool{"until they are answered": true, "until a further SIGTERM": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+redis.Addr, "STORE_TIMEOUT=1h", "STOP_TIMEOUT=1h")
			s.remaining("alice")
			must.Succeed(t, redis.Signal(syscall.SIGSTOP))
			t.Cleanup(func() { _ = redis.Signal(syscall.SIGCONT) })
			results := make(chan error, 1)
			go func() {
				_, err := s.call("alice")
				results <- err
			}()
			s.awaitInFlight("1")
			s.terminate(1)
			s.awaitClosed()
			if answered {
				_ = redis.Signal(syscall.SIGCONT)
			} else {
				s.terminate(1)
			}
			if err := <-results; (err == nil) != answered {
				t.Errorf("the request: %v", err)
			}
			s.awaitStop()
		})
	}
}

// The end of a server waits for requests in flight, and then closes connections on which half a
// request is open.
func TestStopWaitsForRequestsInFlight(t *testing.T) {
	// stopGRPC checks the requests every hundredth of idleToStop. The request ends between two
	// checks, so that its order with a check is certain.
	const between = idleToStop / 200
	for name, c := range map[string]struct{ left, canceled, want time.Duration }{
		"until they are decided": {5*idleToStop + between, time.Hour, 6 * idleToStop},
		"until its context ends": {time.Hour, 5 * idleToStop, 5 * idleToStop},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := admission.NewGate(1)
				must.Succeed(t, gate.Admit(false))
				server, conn := serverInMemory(t, rls.Options{})
				partialRequests(t, conn, 1)
				ctx, cancel := context.WithTimeout(t.Context(), c.canceled)
				defer cancel()
				leaves := time.AfterFunc(c.left, gate.Done)
				defer leaves.Stop()
				began := time.Now()
				stopGRPC(ctx, server, gate)
				if took := time.Since(began); took < c.want || took > c.want+idleToStop/10 {
					t.Errorf("the stop took %v, want %v", took, c.want)
				}
			})
		})
	}
}

// A SIGTERM just after the server listens, when it may not serve yet, ends it with 0.
func TestSIGTERMAtStartExitsWithZero(t *testing.T) {
	t.Parallel()
	path := rulesFile(t)
	for range 5 {
		s := startServer(t, "CONFIG_PATH="+path) // returns once the log has "listening"
		s.stop()
	}
}

// A file on a disk that hangs, or a pipe without a writer, does not keep a server that starts from
// stopping.
func TestSIGTERMStopsServerThatWaitsForAFile(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	must.Succeed(t, syscall.Mkfifo(secret, 0o600))
	s := startProcess(t, "CONFIG_PATH="+rulesFile(t), "RECORD_PATH="+t.TempDir(), "RECORD_SECRET_FILE="+secret)
	s.log.await(t, 0, "rules loaded")
	s.stop()
	if text := s.output.String(); !strings.Contains(text, "start timed out after a signal") || !strings.Contains(text, "stopped before it listened") {
		t.Errorf("logged %s", text)
	}
}

func TestManySIGTERMsExitWithZero(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "DRAIN_DELAY=1h", "STOP_TIMEOUT=1s")
	s.terminate(10)
	for range 3 { // signals that arrive together may count as one
		time.AfterFunc(100*time.Millisecond, func() { _ = s.cmd.Process.Signal(syscall.SIGTERM) })
	}
	s.awaitStop()
}

// SIGTERM ends a server with 0, even if it was never ready or its store hangs.
func TestSIGTERMStopsServerWithHungDependency(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	must.Succeed(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	nobody := redistest.FreeAddr(t)
	path := rulesFile(t)
	for name, c := range map[string]struct {
		settings []string
		freeze   bool // Redis, with requests in flight
	}{
		"no Redis":                 {settings: []string{"CONFIG_PATH=" + path, "REDIS_URL=" + nobody}},
		"a silent Redis":           {settings: []string{"CONFIG_PATH=" + path, "REDIS_URL=" + silent.Addr().String(), "STORE_TIMEOUT=1h"}},
		"a Redis that freezes":     {settings: []string{"CONFIG_PATH=" + path, "STORE_TIMEOUT=1h"}, freeze: true},
		"no control plane":         {settings: []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + nobody}},
		"a silent control plane":   {settings: []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + silent.Addr().String()}},
		"a silent trace collector": {settings: []string{"CONFIG_PATH=" + path, "TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + silent.Addr().String()}},
		"a silent statsd":          {settings: []string{"CONFIG_PATH=" + path, "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATSD_PORT=" + port(silent)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var redis *redistest.Server
			if c.freeze {
				redis = redistest.Start(t)
				c.settings = append(c.settings, "REDIS_URL="+redis.Addr)
			}
			s := startServer(t, append(c.settings, "STOP_TIMEOUT=500ms")...)
			results := make(chan error, 51)
			if c.freeze {
				s.remaining("alice")
				must.Succeed(t, redis.Signal(syscall.SIGSTOP))
				t.Cleanup(func() { _ = redis.Signal(syscall.SIGCONT) })
				for i := range 50 {
					go func() {
						_, err := s.call(fmt.Sprint("user ", i))
						results <- err
					}()
				}
				go func() {
					const ask = `{"domain":"ugc","descriptors":[{"entries":[{"key":"user_id","value":"bob"}]}]}`
					r, err := http.Post("http://"+s.httpAddr+"/json", "application/json", strings.NewReader(ask))
					if err == nil && r.StatusCode >= 500 {
						err = errors.New(r.Status)
					}
					results <- err
				}()
				s.awaitInFlight("51")
			}
			s.stop()
			if said := s.output.String(); strings.Contains(said, "panic") {
				t.Errorf("it panicked:\n%s", said)
			}
			if c.freeze {
				for range 51 {
					if err := <-results; err == nil {
						t.Error("a request that Redis did not decide was answered")
					}
				}
			}
		})
	}
}

func port(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// A save on a slow disk may take longer than STOP_TIMEOUT. The process must not end before it,
// unless it takes minutes. After the save, the rest of the stop has the time of any forced stop.
func TestForcedStopWaitsForTheSave(t *testing.T) {
	const stopTimeout = 10 * time.Second
	for name, c := range map[string]struct {
		save, rest, abandoned time.Duration // abandoned: when, since the stop began; 0: never
	}{
		"a fast save":                 {time.Second, 0, 0},
		"a slow save":                 {stopTimeout + 20*time.Second, 0, 0},
		"a disk that does not answer": {time.Hour, 0, stopTimeout + forcedStopTimeout + saveTimeout},
		"a rest that hangs":           {stopTimeout + 5*time.Second, time.Hour, stopTimeout + 5*time.Second + forcedStopTimeout},
		"a rest after a short save":   {stopTimeout + forcedStopTimeout*9/10, forcedStopTimeout / 2, 0},
		"a rest after a late save":    {stopTimeout + forcedStopTimeout + saveTimeout - time.Second, forcedStopTimeout - time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal, 1)
				s := newStopper(signals)
				signals <- syscall.SIGTERM
				s.wait(t.Context())
				began := time.Now()
				s.forceAfter(stopTimeout)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					s.save(func() { time.Sleep(c.save) })
					time.Sleep(c.rest)
					s.done()
				}()
				var abandoned time.Duration
				select {
				case <-s.abandoned:
					abandoned = time.Since(began)
				case <-ended:
				}
				if abandoned != c.abandoned {
					t.Errorf("abandoned after %v, want %v; 0 is never", abandoned, c.abandoned)
				}
				<-ended
			})
		})
	}
}
