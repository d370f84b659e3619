// Package harness starts real servers for the demo and the end-to-end tests: Weir, built from this
// tree, and Envoy with the files in envoy/. They listen only on free loopback ports, and end with
// their parent process.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weir-rls/weir/internal/freeport"
)

// Root returns the root of the repository: the nearest parent folder with cmd/server. Some tests
// are separate modules.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "server")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no cmd/server here or above: run this in the repository")
		}
		dir = up
	}
}

// BuildWeir builds the server into dir, like a release, and returns the path of the binary.
func BuildWeir(ctx context.Context, dir string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "weir")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-w", "-o", path, "./cmd/server") // links in less time without DWARF
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w\n%s", err, out)
	}
	return path, nil
}

// Listens reports whether a server listens on addr.
func Listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// WeirOptions configures a Weir. Binary, Rules and Dir are required.
type WeirOptions struct {
	Binary string   // as BuildWeir returned it
	Rules  string   // a rules file, or a folder of them
	Dir    string   // for the log
	Redis  string   // host:port; empty: the memory store
	Env    []string // further settings, "NAME=value"
	Host   string   // gRPC address; empty: 127.0.0.1
	Port   int      // gRPC port; 0: a free one
}

// A Weir is a running server.
type Weir struct {
	*Process
	GRPC string // host:port of Envoy's RateLimitService
	HTTP string // the URL of /healthcheck and /metrics, without the path
	// Debug is the URL of the debug pages, without a path, unless Env overrides it.
	Debug string
}

// StartWeir starts Weir and returns once it is ready.
func StartWeir(ctx context.Context, o WeirOptions) (*Weir, error) {
	p, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	if o.Port != 0 {
		p[0] = o.Port
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	cmd := exec.Command(o.Binary, "serve", "--config", o.Rules)
	cmd.Env = append(os.Environ(),
		"HOST=127.0.0.1", "GRPC_HOST="+o.Host, "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT="+strconv.Itoa(p[0]), "PORT="+strconv.Itoa(p[1]), "DEBUG_PORT="+strconv.Itoa(p[2]),
		"BACKEND_TYPE=memory", "LOG_LEVEL=info",
		"DRAIN_DELAY=0s") // there is no proxy that must find another replica
	if o.Redis != "" {
		cmd.Env = append(cmd.Env, "BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+o.Redis)
	}
	cmd.Env = append(cmd.Env, o.Env...)
	w := &Weir{GRPC: net.JoinHostPort(o.Host, strconv.Itoa(p[0])), HTTP: "http://" + freeport.Addr(p[1]), Debug: "http://" + freeport.Addr(p[2])}
	if w.Process, err = Start(ctx, cmd, filepath.Join(o.Dir, "weir.log"), healthy(p[1])); err != nil {
		return nil, err
	}
	return w, nil
}

// healthy reports whether the service with this HTTP port is ready.
func healthy(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := Get(ctx, "http://"+freeport.Addr(port)+"/healthcheck")
		return err
	}
}

// client does not reuse connections, so that polling does not delay a draining server.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Get returns the page at url. It fails on a status other than 200, and after 2 minutes.
func Get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 256<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, res.Status)
	}
	return string(b), err
}
