// Package containers_test tests Weir as a user with containers sees it: the image of Weir, Redis
// and Envoy, each in a container, on one network. It is a module of its own, because the product
// needs none of its dependencies.
//
// It needs a Docker daemon on this machine, which `make e2e` finds or starts. Ports are published
// only on 127.0.0.1.
package containers_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
)

// docker is the daemon, and images are the images that it runs. TestMain sets both.
var (
	docker *testcontainers.DockerClient
	images struct{ weir, redis, envoy, incumbent, gateway image }
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	// The reaper would be one more image. Each test removes the containers that it started.
	for name, value := range map[string]string{"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1"} {
		if err := os.Setenv(name, value); err != nil {
			return 0, err
		}
	}
	tclog.SetDefault(quiet{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if docker, err = testcontainers.NewDockerClientWithOpts(ctx); err != nil {
		return 0, fmt.Errorf("no Docker daemon: `make e2e` finds or starts one: %w", err)
	}
	defer docker.Close()
	done, err := makeImages(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if err := flag.Set("test.parallel", "4"); err != nil { // these tests wait more than they compute
		return 0, err
	}
	return m.Run(), nil
}

// quiet silences messages about containers that start and stop; a test logs what it needs.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
