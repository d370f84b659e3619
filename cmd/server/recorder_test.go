package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

const recordedRules = `
domain: ugc
descriptors:
  - {key: window, rate_limit: {unit: second, requests_per_unit: 20}}
  - {key: log, rate_limit: {algorithm: sliding_log, unit: second, requests_per_unit: 20}}
  - {key: funnel, rate_limit: {algorithm: funnel, unit: second, requests_per_unit: 20, capacity: 7}}
  - key: group
    rate_limits:
      - {algorithm: funnel, unit: second, requests_per_unit: 30, capacity: 5}
      - {unit: minute, requests_per_unit: 60}
`

// askRecorded sends random requests of 64 callers, with refunds or without, and returns how many
// were sent and how many denied.
func (s *server) askRecorded(each int, refunds bool) (sent, denied int) {
	s.t.Helper()
	var over atomic.Int64
	var callers sync.WaitGroup
	const all = 64
	for caller := range all {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 3))
			for i := range each {
				if i%20 == 19 {
					nextSecond := time.Now().Truncate(time.Second).Add(time.Second)
					time.Sleep(time.Until(nextSecond)) // so that each key has several windows
				}
				request := &ratelimitv3.RateLimitRequest{Domain: "ugc"}
				for range 1 + random.IntN(2) {
					key := []string{"window", "log", "funnel", "group"}[random.IntN(4)]
					d := &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: key, Value: fmt.Sprint("alice-", random.IntN(4))}}}
					if random.IntN(10) == 0 {
						d.HitsAddend = wrapperspb.UInt64(uint64(random.IntN(4)))
						d.IsNegativeHits = refunds && random.IntN(3) == 0
					}
					request.Descriptors = append(request.Descriptors, d)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				response, err := s.client.ShouldRateLimit(ctx, request)
				cancel()
				if err != nil {
					s.t.Error(err)
					return
				}
				if response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
					over.Add(1)
				}
			}
		})
	}
	callers.Wait()
	return all * each, int(over.Load())
}

// The recording of a live server on Redis, under 64 concurrent callers, returns every verdict in a
// replay. So do the denials of the deny cache, which are marked.
func TestReplayOfALiveServerReturnsEveryVerdict(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"redis":      {"RECORD_COMPRESSION=none", "LOCAL_CACHE_SIZE_IN_BYTES=0"},
		"deny cache": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis, folder := redistest.Start(t), t.TempDir()
			path := filepath.Join(t.TempDir(), "rules.yaml")
			write(t, path, recordedRules)
			dir := filepath.Join(folder, "recording")
			s := startServer(t, append(settings, "CONFIG_PATH="+path, "REDIS_URL="+redis.Addr, "RECORD_PATH="+dir)...)
			s.awaitHealthy()
			sent, denied := s.askRecorded(40, name == "redis")
			s.stop()
			cached := replaysLive(t, dir, sent, denied)
			if (cached > 0) != (name == "deny cache") || denied == 0 {
				t.Errorf("%d of %d requests are denied, %d by the cache", denied, sent, cached)
			}
		})
	}
}

// replaysLive replays the recordings in a folder, and returns how many lines have a denial by the
// cache.
func replaysLive(t *testing.T, dir string, sent, denied int) (cached int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	must.Succeed(t, err)
	files, err := recording.Open(paths, nil)
	must.Succeed(t, err)
	defer files.Close()
	rules := rulesfiletest.Parse(t, recordedRules)
	replayer := replay.New(rules, replay.Options{})
	n, over, parts := 0, 0, 0
	var line recording.Line
	var result decide.Result
	for err = files.Next(&line); err == nil; err = files.Next(&line) {
		must.Succeed(t, replayer.Decide(line.At, &line.Request, &result))
		if n++; !line.HasAllowed || line.Allowed == result.Denied {
			t.Errorf("line %d: %+v, replayed denied %v", n, line, result.Denied)
		}
		if !line.Allowed {
			over++
		}
		if line.LeftOut > 0 { // two lines of one request
			parts++
		}
		if line.By == recording.FromCache {
			cached++
		}
	}
	if !errors.Is(err, io.EOF) || n-parts/2 != sent || over < denied || over > denied+parts || len(files.Skipped()) > 0 {
		t.Errorf("%d lines and %d denials of %d requests and %d, %v, skipped %+v", n, over, sent, denied, err, files.Skipped())
	}
	return cached
}

func TestSecretOfARecordingIsChecked(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "short\n")
	t.Setenv("RECORD_PATH", t.TempDir())
	t.Setenv("RECORD_SECRET_FILE", secret)
	if code, said := runWeir("--config="+rulesFile(t), "--port=0", "--grpc-port=0", "--debug-port=0"); code != 1 || !strings.Contains(said, "RECORD_SECRET_FILE: the secret in "+secret+" has 5 bytes: write at least 16") {
		t.Errorf("exit code %d: %s", code, said)
	}
	must.Succeed(t, os.Remove(secret))
	if code, said := runWeir("--config="+rulesFile(t), "--port=0", "--grpc-port=0", "--debug-port=0"); code != 1 || !strings.Contains(said, "RECORD_SECRET_FILE: read "+secret) {
		t.Errorf("exit code %d: %s", code, said)
	}
}
