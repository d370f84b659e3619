package harness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/weir-rls/weir/internal/freeport"
)

// FindRatelimit returns the path of envoyproxy/ratelimit: $INCUMBENT.
func FindRatelimit() (string, error) {
	name := os.Getenv("INCUMBENT")
	if name == "" {
		return "", errors.New(`INCUMBENT is not set: eval "$(tools/ensure incumbent)" builds envoyproxy/ratelimit`)
	}
	return exec.LookPath(name)
}

// RatelimitOptions configures an envoyproxy/ratelimit. All fields but Rules and Env are required.
type RatelimitOptions struct {
	Binary string   // as FindRatelimit returned it
	Rules  string   // the text of its rules; empty: Dir has files of rules in ratelimit/config
	Redis  string   // host:port
	Dir    string   // for its rules and its log
	Env    []string // further settings, "NAME=value"
}

// A Ratelimit is a running envoyproxy/ratelimit.
type Ratelimit struct {
	*Process
	GRPC  string // host:port of Envoy's RateLimitService
	Debug string // the URL of the debug pages, without a path
}

// StartRatelimit starts envoyproxy/ratelimit, or a Weir with its settings, and returns once it is
// healthy.
func StartRatelimit(ctx context.Context, o RatelimitOptions) (*Ratelimit, error) {
	if o.Rules != "" {
		folder := filepath.Join(o.Dir, "ratelimit", "config")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(folder, "rules.yaml"), []byte(o.Rules), 0o600); err != nil {
			return nil, err
		}
	}
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	r := &Ratelimit{GRPC: freeport.Addr(ports[0]), Debug: "http://" + freeport.Addr(ports[2])}
	cmd := exec.Command(o.Binary)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + o.Dir, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT=" + strconv.Itoa(ports[0]), "PORT=" + strconv.Itoa(ports[1]), "DEBUG_PORT=" + strconv.Itoa(ports[2]),
		"RUNTIME_ROOT=" + o.Dir, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + o.Redis, "USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=error",
	}, o.Env...)
	if r.Process, err = Start(ctx, cmd, filepath.Join(o.Dir, "ratelimit.log"), healthy(ports[1])); err != nil {
		return nil, err
	}
	return r, nil
}
