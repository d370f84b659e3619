package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/freeport"
)

// bareGOGC is the GOGC that Weir sets for itself while it holds few keys.
const bareGOGC = 1600

// ratelimitSettings are settings of envoyproxy/ratelimit. Row "settings" found the first to be the
// fastest. It turns statistics off, has a pool so small that requests share writes to Redis, and a
// large local cache, which also reduces garbage collections. REDIS_PIPELINE_WINDOW affects only
// clusters; on a cluster of one node it is no faster.
var ratelimitSettings = []struct {
	name subject
	env  []string
}{
	{ratelimit, []string{"DISABLE_STATS=true", bigCache, "REDIS_POOL_SIZE=2"}},
	{"ratelimit/pool of 1", []string{"DISABLE_STATS=true", bigCache, "REDIS_POOL_SIZE=1"}},
	{"ratelimit/pool of 4", []string{"DISABLE_STATS=true", bigCache, "REDIS_POOL_SIZE=4"}},
	{"ratelimit/pool of 10", []string{"DISABLE_STATS=true", bigCache}},
	{"ratelimit/pool of 40", []string{"DISABLE_STATS=true", bigCache, "REDIS_POOL_SIZE=40"}},
	{"ratelimit/no cache", []string{"DISABLE_STATS=true", "REDIS_POOL_SIZE=2"}},
	{"ratelimit/Prometheus", []string{"DISABLE_STATS=false", "USE_PROMETHEUS=true", bigCache, "REDIS_POOL_SIZE=2"}},
	{"ratelimit/pipeline", []string{"DISABLE_STATS=true", bigCache, "REDIS_POOL_SIZE=2", "REDIS_PIPELINE_WINDOW=150us", "REDIS_PIPELINE_LIMIT=16"}},
	{"ratelimit/GOGC=400", []string{"DISABLE_STATS=true", bigCache, "REDIS_POOL_SIZE=2", "GOGC=400"}}, // a setting of Go's runtime
}

// bigCache is the size of the local cache, for both services.
const bigCache = "LOCAL_CACHE_SIZE_IN_BYTES=67108864"

// lateIsNoError makes a late answer of Redis count as latency instead of as an error, as in
// envoyproxy/ratelimit.
const lateIsNoError = "STORE_TIMEOUT=1s"

// mergeFiles allows a domain in several files.
const mergeFiles = "MERGE_DOMAIN_CONFIG=true"

// observed turns on everything that names the limit of a denial or its key: the sketches of the
// busiest keys, the denial log, the header and receipts.
const observed = "observed"

var observedSettings = []string{
	"ADMIN_ADDR=127.0.0.1:0", "TOP_KEYS=1000", "DENIAL_LOG=0.01", "RESPONSE_HEADER_DENIED_BY=x-denied-by", "RECEIPT_HEADER=x-weir-receipt",
}

// shadow has candidate rules decide every request a second time. Their limits are those of the
// rules in force.
const shadow = "shadow"

// recorded has Weir record all requests, and sampled those of a tenth of the keys.
const recorded, sampled = "recorded", "sampled"

// A subject is a server to measure: bare, memory/ALGORITHM, redis/ALGORITHM, ratelimit or
// ratelimit/SETTINGS. With /observed after its algorithm, Weir has observedSettings; with /shadow,
// its rules are the candidate too; with /recorded or /sampled, it records requests.
type subject string

const (
	bare      subject = "bare"
	ratelimit subject = "ratelimit"
)

// binaries holds the paths of the servers' binaries.
type binaries struct{ weir, bare, ratelimit, redis string }

// A setup is a running subject with the processes that it needs.
type setup struct {
	side
	dir                  string // of its files
	addr                 string // the address that receives the load
	server, redis, envoy *harness.Process
	envoyAdmin           string
	debug                string // the URL of the server's profiler, without a path
	load                 load
}

// startSubject starts a subject in an empty folder.
func startSubject(ctx context.Context, server side, l load, dir string) (_ *setup, err error) {
	up, s := &setup{side: server, dir: dir}, server.subject
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", s, err), up.stop())
		}
	}()
	store, variant, _ := strings.Cut(string(s), "/")
	algorithm, extra, _ := strings.Cut(variant, "/")
	if store == string(ratelimit) {
		algorithm = "" // it has only one
	}
	rules, err := writeRules(dir, algorithm, l.ruled)
	if err != nil {
		return nil, err
	}
	env, err := extraSettings(extra, dir, rules)
	if err != nil {
		return nil, err
	}
	redis := ""
	if store != string(bare) && store != "memory" {
		if redis, err = up.startRedis(ctx); err != nil {
			return nil, err
		}
	}
	switch {
	case s == bare:
		err = up.startBare(ctx)
	case store == string(ratelimit):
		err = up.startRatelimit(ctx, redis)
	default:
		err = up.startWeir(ctx, rules, redis, append(slices.Clone(l.env), env...))
	}
	if err == nil && l.proxy {
		err = up.startEnvoy(ctx)
	}
	return up, err
}

// extraSettings returns the settings of Weir for the last part of a subject.
func extraSettings(extra, dir, rules string) ([]string, error) {
	switch extra {
	case observed:
		keys := filepath.Join(dir, "receipt-keys")
		err := os.WriteFile(keys, []byte(strings.Repeat("5a", 32)), 0o600)
		return append(slices.Clone(observedSettings), "RECEIPT_KEYS_FILE="+keys), err
	case shadow:
		return []string{"SHADOW_CONFIG=" + rules}, nil
	case recorded, sampled:
		env := []string{"RECORD_PATH=" + filepath.Join(dir, "recording"), "RECORD_PER_SECOND=10000000"}
		if extra == sampled {
			env = append(env, "RECORD_SAMPLE=0.1")
		}
		return env, nil
	}
	return nil, nil
}

// startEnvoy puts an Envoy in front of the server, which then receives the load.
func (s *setup) startEnvoy(ctx context.Context) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	envoy, err := harness.StartEnvoy(ctx, harness.EnvoyOptions{
		Bootstrap: filepath.Join(root, "envoy", "bootstrap.yaml"), Weir: s.addr, Dir: s.dir,
	})
	if err == nil {
		s.envoy, s.addr, s.envoyAdmin = envoy.Process, envoy.URL[len("http://"):], envoy.Admin
	}
	return err
}

func (s *setup) startWeir(ctx context.Context, rules, redis string, env []string) error {
	w, err := harness.StartWeir(ctx, harness.WeirOptions{
		Binary: s.binaries.weir, Rules: rules, Dir: s.dir, Redis: redis,
		Env: append([]string{"LOG_LEVEL=warn", bigCache, mergeFiles, lateIsNoError}, env...),
	})
	if err == nil {
		s.server, s.addr, s.debug = w.Process, w.GRPC, w.Debug
	}
	return err
}

func (s *setup) startRedis(ctx context.Context) (string, error) {
	port, err := freeport.Find()
	if err != nil {
		return "", err
	}
	addr := freeport.Addr(port)
	cmd := exec.Command(s.binaries.redis, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", s.dir)
	s.redis, err = harness.Start(ctx, cmd, filepath.Join(s.dir, "redis.log"), harness.Listens(addr))
	return addr, err
}

func (s *setup) startBare(ctx context.Context) error {
	ports, err := harness.FreePorts(2)
	if err != nil {
		return err
	}
	addr, debug := freeport.Addr(ports[0]), freeport.Addr(ports[1])
	cmd := exec.Command(s.binaries.bare, "-listen", addr, "-debug", debug, "-gogc", strconv.Itoa(bareGOGC))
	s.addr, s.debug = addr, "http://"+debug
	s.server, err = harness.Start(ctx, cmd, filepath.Join(s.dir, "bare.log"), harness.Listens(addr))
	return err
}

func (s *setup) startRatelimit(ctx context.Context, redis string) error {
	var settings []string
	for _, known := range ratelimitSettings {
		if known.name == s.subject {
			settings = known.env
		}
	}
	port, err := freeport.Find()
	if err != nil {
		return err
	}
	r, err := harness.StartRatelimit(ctx, harness.RatelimitOptions{
		Binary: s.binaries.ratelimit, Redis: redis, Dir: s.dir,
		Env: append([]string{"LOG_LEVEL=warn", "PROMETHEUS_ADDR=" + freeport.Addr(port), mergeFiles}, settings...),
	})
	if err == nil {
		s.server, s.addr, s.debug = r.Process, r.GRPC, r.Debug
	}
	return err
}

// stop ends all processes of the setup.
func (s *setup) stop() error {
	var errs []error
	for _, p := range []*harness.Process{s.envoy, s.server, s.redis} {
		if p != nil {
			_, err := p.Stop()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
