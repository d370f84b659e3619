package differential

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// callTimeout is far longer than a call takes on a busy machine.
const callTimeout = 2 * time.Minute

// A file is a rules file.
type file struct{ name, text string }

// A side is one of the two servers under test.
type side struct {
	*harness.Ratelimit
	client ratelimitv3.RateLimitServiceClient
	conn   *grpc.ClientConn
}

// startRatelimit starts envoyproxy/ratelimit with files and env on a Redis of its own. startWeir
// does the same for Weir, with two more settings, which affect timing only.
func startRatelimit(t *testing.T, files []file, env ...string) *side {
	t.Helper()
	return startSide(t, harness.MustFindRatelimit(t), files, env...)
}

func startWeir(t *testing.T, files []file, env ...string) *side {
	t.Helper()
	binary := weirBinary(t)
	return startSide(t, binary, files, append(env, "STORE_TIMEOUT=1m", "DRAIN_DELAY=0s")...)
}

// startSide starts a server, which is killed at the end of the test.
func startSide(t *testing.T, binary string, files []file, env ...string) *side {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		must.Write(t, filepath.Join(dir, "ratelimit", "config", f.name), f.text)
	}
	r := harness.MustStartRatelimit(t, harness.RatelimitOptions{
		Binary: binary, Redis: redistest.Start(t).Addr, Dir: dir, Env: append([]string{"LOG_LEVEL=warn"}, env...),
	})
	conn, err := grpc.NewClient(r.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &side{r, ratelimitv3.NewRateLimitServiceClient(conn), conn}
}

func (s *side) ask(ctx context.Context, request *ratelimitv3.RateLimitRequest) answer {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := s.client.ShouldRateLimit(ctx, request)
	return answer{response, err}
}
