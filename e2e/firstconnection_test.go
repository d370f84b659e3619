package e2e_test

import (
	"bufio"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// Envoy learns Weir's bound of 128 streams for each connection only from Weir's first frame, and
// Weir refuses the streams of a new connection beyond it. With the bound in its configuration,
// Envoy opens more connections instead. Weir is stopped while Envoy connects, so that all requests
// wait for the first connection.
func TestBurstBeforeFirstConnectionIsDecided(t *testing.T) {
	t.Parallel()
	const requests, limit, bound = 1000, 10, "max_concurrent_streams: 128"
	for name, remove := range map[string]string{
		"bootstrap.yaml": "", "bootstrap-1.30.yaml": "", "bootstrap.yaml without the bound": bound,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWeir(t, "", must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), hourly(limit)))
			file, _, without := strings.Cut(name, " ")
			e := harness.MustStartEnvoy(t, harness.EnvoyOptions{
				Bootstrap: filepath.Join("..", "envoy", file), Weir: w.GRPC, Timeout: testTimeout,
				Edit: func(text string) string {
					if !strings.Contains(text, bound) {
						t.Errorf("%s has no %s", file, bound)
					}
					return strings.Replace(text, remove, "", 1)
				},
			})

			signal(t, w.Process, syscall.SIGSTOP)
			send := sendTogether(t, strings.TrimPrefix(e.URL, "http://"), requests)
			must.Until(t, "all requests wait for Weir", func() bool { return e.MustStat(t, "cluster.weir.upstream_rq_active") == requests })
			signal(t, w.Process, syscall.SIGCONT)
			got := send()
			failed := e.MustStat(t, "cluster.backend.ratelimit.error")
			t.Logf("answers by status: %v; undecided: %d; connections: %d", got, failed, e.MustStat(t, "cluster.weir.upstream_cx_total"))
			if without {
				if failed == 0 {
					t.Error("every request was decided: remove the bound from Envoy's configuration and docs/failure-modes.md")
				}
			} else if failed > 0 || got[200] != limit || got[429] != requests-limit {
				t.Errorf("want %d of 200 and %d of 429", limit, requests-limit)
			}
		})
	}
}

func signal(t *testing.T, p *harness.Process, s syscall.Signal) {
	t.Helper()
	must.Succeed(t, syscall.Kill(p.PID(), s))
}

// sendTogether sends n requests of one user, each on a connection of its own. The function that it
// returns waits for the answers, and counts them by status.
func sendTogether(t *testing.T, addr string, n int) (wait func() map[int]int) {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", addr)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		conns[i] = conn
	}
	for _, conn := range conns {
		must.Succeed(t, conn.SetDeadline(time.Now().Add(testTimeout)))
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nx-user-id: alice\r\nx-action: login\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	return func() map[int]int {
		got := map[int]int{}
		for _, conn := range conns {
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must.Succeed(t, err)
			_ = res.Body.Close()
			got[res.StatusCode]++
		}
		return got
	}
}
