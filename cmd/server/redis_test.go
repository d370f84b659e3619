package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

func TestServerWithoutRedisIsNotReady(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	addr := redistest.FreeAddr(t)
	s := startServer(t, "CONFIG_PATH="+path, "REDIS_URL="+addr)
	line, _ := s.log.await(t, 0, "redis does not answer")
	if !strings.Contains(line, addr) {
		t.Errorf("the log does not name %s: %s", addr, line)
	}
	if code, _ := s.get("/healthcheck"); code != 500 {
		t.Errorf("/healthcheck without Redis: %d, want 500", code)
	}
	if s.healthy("") || s.healthy("ratelimit") {
		t.Error("gRPC health without Redis: serving")
	}
	if _, err := s.call("alice"); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want UNAVAILABLE", err)
	}

	redis, err := redistest.Run(addr)
	must.Succeed(t, err)
	t.Cleanup(redis.Stop)
	s.log.await(t, 0, "redis answers")
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
	watch, err := s.health.Watch(context.Background(), &healthv1.HealthCheckRequest{})
	must.Succeed(t, err)
	awaitServing(t, watch)
	s.awaitHealthy()
}

func TestReadyWhenRedisStartsLate(t *testing.T) {
	t.Parallel()
	addr := redistest.FreeAddr(t)
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+addr)
	s.log.await(t, 0, "redis does not answer")
	if code, _ := s.get("/healthcheck"); code != 500 {
		t.Errorf("/healthcheck is %d while there is no Redis, want 500", code)
	}
	redis, err := redistest.Run(addr)
	must.Succeed(t, err)
	t.Cleanup(redis.Stop)
	s.awaitHealthy()
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
}

// A Redis whose round trip exceeds STORE_TIMEOUT does not make Weir ready. The log names the round
// trip and the remedy.
func TestRedisSlowerThanStoreTimeoutIsNotReady(t *testing.T) {
	redis := redistest.Start(t)
	far := redistest.SlowProxy(t, redis.Addr, 50*time.Millisecond)
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+far, "STORE_TIMEOUT=20ms")
	line, _ := s.log.await(t, 0, "redis answers too late")
	for _, want := range []string{"a call to Redis takes longer than STORE_TIMEOUT: ", "want less than 20ms", "raise STORE_TIMEOUT", "Envoy"} {
		if !strings.Contains(line, want) {
			t.Errorf("the log does not say %q: %s", want, line)
		}
	}
	if code, _ := s.get("/healthcheck"); code != 500 {
		t.Errorf("/healthcheck is %d, want 500", code)
	}
	near := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+far, "STORE_TIMEOUT=1s")
	near.awaitHealthy()
	if got := near.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
}

// Hits past STORE_MAX_WAITING are rejected immediately.
func TestStoreMaxWaitingBoundsTheQueue(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+redis.Addr, "STORE_MAX_WAITING=1")
	s.awaitHealthy()
	must.Succeed(t, redis.Signal(syscall.SIGSTOP))
	refused := make(chan error, 3)
	for _, user := range []string{"a", "b", "c"} {
		go func() {
			_, err := s.call(user)
			refused <- err
		}()
	}
	err := <-refused
	if status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want one rejection of three", err)
	}
	s.log.await(t, 0, "the queue for Redis is full")
	must.Succeed(t, redis.Signal(syscall.SIGCONT))
	for range 2 {
		if err := <-refused; err != nil && status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	}
}

// The password changes in Redis and in the file, without a restart.
func TestRedisPasswordFileIsReread(t *testing.T) {
	t.Parallel()
	const first, second = "first-secret", "second-secret"
	redis := redistest.Start(t)
	redis.SetUser(t, "weir", "on", ">"+first, "~*", "+@all")
	secret := filepath.Join(t.TempDir(), "auth")
	write(t, secret, "weir:"+first+"\n")
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+redis.Addr, "REDIS_AUTH_FILE="+secret, "LOG_LEVEL=debug")
	s.awaitHealthy()
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
	end := func() {
		t.Helper()
		must.Succeed(t, redis.Client(t).Do(t.Context(), "client", "kill", "user", "weir").Err())
	}
	redis.SetUser(t, "weir", "resetpass", ">"+second)
	end()
	if _, err := s.call("bob"); err == nil {
		t.Error("Redis accepted the old password, want an error")
	}
	s.log.await(t, 0, "WRONGPASS")
	must.Succeed(t, os.Remove(secret))
	if _, err := s.call("bob"); err == nil {
		t.Error("a call without a password file succeeded, want an error")
	}
	write(t, secret, "weir:"+second)
	must.Until(s.t, "the new password", func() bool {
		_, err := s.call("bob")
		return err == nil
	})
	if got := s.remaining("alice"); got != 1 {
		t.Errorf("%d left, want 1", got)
	}
	mustNotShow(t, []string{first, second}, "the log", s.output.String())
}

// The CA of Redis is added to the file without a restart.
func TestChangedCAOfRedisIsReread(t *testing.T) {
	t.Parallel()
	old, renewed := certtest.New(t), certtest.New(t)
	redis, client := redistest.StartTLS(t, renewed, "127.0.0.1"), renewed.Issue(t, "weir")
	both := string(must.Read(t, old.File)) + string(must.Read(t, renewed.File))
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL=rediss://"+redis.Addr, "REDIS_TLS_CACERT="+old.File,
		"REDIS_TLS_CLIENT_CERT="+client.Cert, "REDIS_TLS_CLIENT_KEY="+client.Key)
	s.log.await(t, 0, "unknown authority")
	write(t, old.File, "half a certifica")
	line, _ := s.log.await(t, 0, "CA of Redis not reloaded, the old one stays in use")
	if !strings.Contains(line, old.File) {
		t.Errorf("the log does not name %s: %s", old.File, line)
	}
	write(t, old.File, both)
	s.awaitHealthy()
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
}

// A lease that a replica grants without Redis ends there, if another limit denies its request.
func TestDeniedRequestHoldsNoSlotWithoutRedis(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, `domain: ugc
on_store_error: local
descriptors:
- {key: lease, rate_limit: {algorithm: concurrency, concurrent_requests: 1, lease_ttl: 1h}}
- {key: denied, rate_limit: {unit: hour, requests_per_unit: 0}}
`)
	s := startServer(t, "CONFIG_PATH="+path, "REDIS_URL="+redistest.FreeAddr(t))
	open := func(id string, others ...string) ratelimitv3.RateLimitResponse_Code {
		request := &ratelimitv3.RateLimitRequest{Domain: "ugc"}
		for _, key := range append([]string{"lease"}, others...) {
			entry := &commonv3.RateLimitDescriptor_Entry{Key: key, Value: id}
			request.Descriptors = append(request.Descriptors, &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{entry}})
		}
		r, err := s.client.ShouldRateLimit(t.Context(), request)
		must.Succeed(t, err)
		return r.GetOverallCode()
	}
	const ok, over = ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT
	// Once the breaker is open, it is certain that Redis has no lease to end.
	for i := range 20 {
		if got := open(fmt.Sprint("denied-", i), "denied"); got != over {
			t.Fatalf("denied request %d: %v", i, got)
		}
	}
	if first, second := open("first"), open("second"); first != ok || second != over {
		t.Errorf("two requests for one slot: %v, %v", first, second)
	}
}

// A replica without requests reports that Redis is back.
func TestIdleReplicaNoticesRecovery(t *testing.T) {
	t.Parallel()
	addr := redistest.FreeAddr(t)
	redis, err := redistest.Run(addr)
	must.Succeed(t, err)
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "REDIS_URL="+addr)
	s.awaitHealthy()
	redis.Stop()
	if _, err := s.call("alice"); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want UNAVAILABLE", err)
	}
	const byStore = `weir_domain_mode{domain="ugc",mode="store"}`
	if got := s.metricOrNone(byStore); got != "0" {
		t.Errorf("%s is %s, want 0", byStore, got)
	}
	redis, err = redistest.Run(addr)
	must.Succeed(t, err)
	t.Cleanup(redis.Stop)
	must.Until(s.t, byStore+" to be 1, after Redis is back", func() bool { return s.metricOrNone(byStore) == "1" })
}
