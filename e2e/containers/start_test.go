package containers_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/moby/moby/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// thousand is a file of 1,000 rules.
func thousand() string {
	var text strings.Builder
	text.WriteString("domain: weir\ndescriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - key: key%d\n    descriptors:\n      - {key: action, value: login, rate_limit: {unit: hour, requests_per_unit: 3}}\n", i)
	}
	return text.String()
}

// answers asks for the last rule until an answer comes, and checks that this rule limits it.
func answers(b *testing.B, address string) {
	b.Helper()
	for {
		// A failing dial costs less than grpc-go's own pauses between dials.
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = c.Close()
			if ask(address) == nil {
				return
			}
		}
		time.Sleep(200 * time.Microsecond)
	}
}

func ask(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "weir", Descriptors: []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{
			{Key: "key999"}, {Key: "action", Value: "login"}}}},
	})
	if err == nil && r.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() != 3 {
		err = fmt.Errorf("the answer is %v", r)
	}
	return err
}

// BenchmarkStart measures the time from the start to the first answer with 1,000 rules. It starts
// the binary as a process, and in a container with and without Docker's part. On a busy machine the
// minimum is the useful figure.
//
//	tools/with-docker go test -run '^$' -bench Start -benchtime 20x .
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	must.Succeed(b, os.Chmod(dir, 0o755))
	must.Succeed(b, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(thousand()), 0o644))
	ports, err := harness.FreePorts(1)
	must.Succeed(b, err)
	port := fmt.Sprint(ports[0])
	b.Run("process", func(b *testing.B) {
		binary := filepath.Join(b.TempDir(), "weir")
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./cmd/server")
		build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		least, cpu := time.Hour, time.Hour
		for b.Loop() {
			c := exec.Command(binary)
			c.Env = []string{"CONFIG_PATH=" + dir, "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "PORT=0", "DEBUG_PORT=0", "GRPC_PORT=" + port}
			began := time.Now()
			must.Succeed(b, c.Start())
			answers(b, "127.0.0.1:"+port)
			least = min(least, time.Since(began))
			b.StopTimer()
			_ = c.Process.Kill()
			_ = c.Wait()
			cpu = min(cpu, c.ProcessState.UserTime()+c.ProcessState.SystemTime())
			b.StartTimer()
		}
		b.ReportMetric(float64(cpu.Microseconds())/1000, "least-cpu-ms")
		b.ReportMetric(float64(least.Microseconds())/1000, "least-ms")
	})
	b.Run("container", func(b *testing.B) {
		least, own := time.Hour, time.Hour
		for b.Loop() {
			b.StopTimer()
			run := func(args ...string) string {
				out, err := exec.Command(os.Getenv("DOCKER"), args...).CombinedOutput()
				if err != nil {
					b.Fatalf("docker %v: %v\n%s", args, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			id := run("create", "--read-only", "--cap-drop=ALL", "-e=CONFIG_PATH=/etc/weir", "-v="+dir+":/etc/weir:ro",
				"-p=127.0.0.1:"+port+":8081", images.weir.name)
			b.StartTimer()
			began := time.Now()
			if _, err := docker.ContainerStart(context.Background(), id, client.ContainerStartOptions{}); err != nil {
				b.Fatal(err)
			}
			answers(b, "127.0.0.1:"+port)
			ended := time.Now()
			b.StopTimer()
			started, err := time.Parse(time.RFC3339Nano, run("inspect", "--format={{.State.StartedAt}}", id))
			must.Succeed(b, err)
			least, own = min(least, ended.Sub(began)), min(own, ended.Sub(started))
			run("rm", "-f", id)
			b.StartTimer()
		}
		b.ReportMetric(float64(least.Microseconds())/1000, "least-ms")
		b.ReportMetric(float64(own.Microseconds())/1000, "least-ms-without-docker")
	})
}
