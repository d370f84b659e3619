package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/dns/dnsmessage"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/e2e/harness"
	load "github.com/weir-rls/weir/internal/loadclient"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/relay"
)

var rollingRate = flag.Int("rolling-rate", 200, "requests a second through each Envoy while replicas are replaced")

const (
	rollingUser  = "user-00000000"
	rollingLimit = 1_000_000
	checkEvery   = 100 * time.Millisecond
)

// Two replicas are replaced one after the other under load, and each request is decided exactly
// once. This holds for each method by which Envoy finds replicas, if new requests avoid a replica
// that is not ready within DRAIN_DELAY, here its default. Less than a second is not enough for
// health checks: Envoy applies changes that follow closely once a second (update_merge_window).
func TestRollingRestartLosesNoRequest(t *testing.T) {
	t.Parallel()
	for _, find := range []struct {
		how string
		by  func(*testing.T, *replicas) finding
	}{
		{"a Service", byService}, {"DNS", byDNS}, {"health checks", byHealthChecks},
		{"two addresses and retries", byRetries},
	} {
		for _, store := range stores {
			t.Run(find.how+"/"+store.name, func(t *testing.T) {
				t.Parallel()
				// A request that is lost while the machine stalls for half of the delay proves
				// nothing. The test then repeats the roll with a longer delay.
				for drain := 2 * time.Second; ; drain *= 3 {
					lost, slow := roll(t, store.redis(t), drain, find.by)
					if lost == "" {
						return
					}
					if slow < drain/2 || drain > time.Minute {
						t.Fatal(lost)
					}
					t.Logf("%s; with a latency of %v the machine is too busy for a delay of %v: again", lost, slow, drain)
				}
			})
		}
	}
}

// roll replaces both replicas under load. lost describes requests that were not decided exactly
// once; slow is the longest latency of the load.
func roll(t *testing.T, redis string, drain time.Duration, by func(*testing.T, *replicas) finding) (lost string, slow time.Duration) {
	t.Helper()
	r := startReplicas(t, redis, drain)
	f := by(t, r)
	if f.weir == "" {
		f.weir = r.all[0].GRPC
	}
	e := harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: filepath.Join("..", "envoy", "bootstrap.yaml"), Weir: f.weir, Timeout: testTimeout,
		Edit: f.edit, Ports: f.ports,
	})
	must.Until(t, "Envoy finds both replicas", func() bool { return f.found(t, e) == len(r.all) })

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan *load.Result, 1)
	go func() {
		r, err := load.Run(ctx, load.Options{
			Addr: strings.TrimPrefix(e.URL, "http://"), Request: load.Get("login"), Conns: 2, InFlight: 100,
			Rate: float64(*rollingRate), Duration: 10 * time.Minute,
		})
		if err != nil {
			t.Error(err)
		}
		ended <- r
	}()
	for i := range r.all {
		must.Until(t, "some requests are answered", func() bool { return r.decided(t, i) > 0 || f.oneAtATime })
		r.replace(t, i)
		must.Until(t, "Envoy finds the new replica", func() bool { return f.found(t, e) == len(r.all) })
	}
	stop()
	seen := <-ended
	if seen == nil {
		return "", 0
	}
	must.Until(t, "nothing is under way", func() bool { return e.MustStat(t, "http.ingress.downstream_rq_active") == 0 })
	total, ok := e.MustStat(t, "http.ingress.downstream_rq_total"), e.MustStat(t, "cluster.backend.ratelimit.ok")
	failed, passed := e.MustStat(t, "cluster.backend.ratelimit.error"), e.MustStat(t, "cluster.backend.ratelimit.failure_mode_allowed")
	slow = seen.Latency.Quantile(1)
	t.Logf("%d requests, p50 %v, at most %v", total, seen.Latency.Quantile(0.5), slow)
	if total < *rollingRate {
		t.Errorf("%d requests: too few for a load", total)
	}
	if seen.Errors != 0 || failed != 0 || passed != 0 || ok != total {
		lost = fmt.Sprintf("of %d requests %d were decided, %d not, %d were let pass undecided; the client saw %d errors (%s)",
			total, ok, failed, passed, seen.Errors, seen.Error)
	}
	if charged := r.charged(t); charged != total {
		lost += fmt.Sprintf("; %d requests were charged %d times", total, charged)
	}
	return lost, slow
}

// replicas are two Weirs with one Redis, or each with its own memory and a snapshot.
type replicas struct {
	options []harness.WeirOptions
	mu      sync.Mutex
	all     []*harness.Weir
	shared  bool
}

// startReplicas starts both replicas, on 127.0.0.2 and 127.0.0.3 with the same port, because a DNS
// name has no port.
func startReplicas(t *testing.T, redis string, drain time.Duration) *replicas {
	t.Helper()
	ports := harness.MustFreePorts(t, 1)
	r := &replicas{shared: redis != ""}
	rules := must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), strings.ReplaceAll(hourly(rollingLimit), "unit: hour", "unit: year"))
	for _, host := range []string{"127.0.0.2", "127.0.0.3"} {
		dir := t.TempDir()
		o := harness.WeirOptions{
			Binary: binary(t), Rules: rules, Dir: dir, Redis: redis, Host: host, Port: ports[0],
			Env: []string{"STORE_TIMEOUT=1m", "MAX_IN_FLIGHT=100000", "DRAIN_DELAY=" + drain.String()},
		}
		if !r.shared {
			o.Env = append(o.Env, "MEMORY_SNAPSHOT="+filepath.Join(dir, "snapshot"))
		}
		r.options, r.all = append(r.options, o), append(r.all, harness.MustStartWeir(t, o))
	}
	return r
}

func (r *replicas) get(i int) *harness.Weir {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[i]
}

// replace ends a replica, and starts another with its address.
func (r *replicas) replace(t *testing.T, i int) {
	t.Helper()
	harness.MustStop(t, r.get(i).Process)
	w := harness.MustStartWeir(t, r.options[i])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[i] = w
}

// ready returns whether a replica reports that it is ready.
func (r *replicas) ready(i int) bool {
	res, err := http.Get(r.get(i).HTTP + "/healthcheck")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// decided returns the number of requests that a replica has answered since its start.
func (r *replicas) decided(t *testing.T, i int) int {
	t.Helper()
	return int(harness.MustMetrics(t, r.get(i).HTTP)[`weir_requests_total{code="OK",overall="ok"}`])
}

// charged returns the hits of all requests.
func (r *replicas) charged(t *testing.T) (sum int) {
	t.Helper()
	for i := range r.all {
		sum += charged(t, r.get(i))
		if r.shared {
			break
		}
	}
	return sum
}

// charged returns the usage of the user of the load.
func charged(t *testing.T, w *harness.Weir) int {
	t.Helper()
	conn, err := grpc.NewClient(w.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "weir", Descriptors: []*commonv3.RateLimitDescriptor{{
			Entries:    []*commonv3.RateLimitDescriptor_Entry{{Key: "user_id", Value: rollingUser}, {Key: "action", Value: "login"}},
			HitsAddend: wrapperspb.UInt64(0), // a peek
		}},
	})
	must.Succeed(t, err)
	return rollingLimit - int(r.GetStatuses()[0].GetLimitRemaining())
}

// A finding is a method by which Envoy finds the replicas.
type finding struct {
	edit       func(bootstrap string) string
	ports      []int                                // further ports, in addition to those of the file
	weir       string                               // host:port of Weir; empty: that of a replica
	found      func(*testing.T, *harness.Envoy) int // the number of replicas that Envoy would ask now
	oneAtATime bool                                 // Envoy asks only one replica at a time
}

// Parts of envoy/bootstrap.yaml.
const (
	aStaticCluster = "type: STATIC # STRICT_DNS for a host name\n"
	theEndpoint    = "              - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8081}}}\n"
	theService     = "grpc_service: {envoy_grpc: {cluster_name: weir}}"
	healthChecks   = `
      health_checks:
        - timeout: 5s
          interval: 0.1s
          no_traffic_interval: 0.1s # else the second check comes a minute after the first
          unhealthy_threshold: 2
          healthy_threshold: 1
          grpc_health_check: {service_name: ratelimit}
`
)

// edits replaces parts of a text. Each part must occur once.
func edits(t *testing.T, oldnew ...string) func(string) string {
	t.Helper()
	return func(text string) string {
		for i := 0; i < len(oldnew); i += 2 {
			if strings.Count(text, oldnew[i]) != 1 {
				t.Fatalf("bootstrap.yaml: want once: %q", oldnew[i])
			}
			text = strings.Replace(text, oldnew[i], oldnew[i+1], 1)
		}
		return text
	}
}

func endpoint(host string, port any) string {
	return fmt.Sprintf("              - endpoint: {address: {socket_address: {address: %s, port_value: %v}}}\n", host, port)
}

func healthy(t *testing.T, e *harness.Envoy) int {
	t.Helper()
	return e.MustStat(t, "cluster.weir.membership_healthy")
}

// byHealthChecks: Envoy knows both addresses and checks them.
func byHealthChecks(t *testing.T, r *replicas) finding {
	t.Helper()
	both := endpoint("127.0.0.2", 8081) + endpoint("127.0.0.3", 8081)
	return finding{edit: edits(t, aStaticCluster, aStaticCluster+healthChecks, theEndpoint, both), found: healthy}
}

// byRetries: Envoy knows both addresses, does not check them, and retries at the other one if a
// port is closed.
func byRetries(t *testing.T, r *replicas) finding {
	t.Helper()
	both := endpoint("127.0.0.2", 8081) + endpoint("127.0.0.3", 8081)
	return finding{
		edit: edits(t, theEndpoint, both, "max_requests: 65536}", "max_requests: 65536, max_retries: 65536}", theService, `grpc_service:
                          envoy_grpc:
                            cluster_name: weir
                          retry_policy:
                            retry_on: "connect-failure,refused-stream"
                            num_retries: 3
                            host_selection_retry_max_attempts: 5
                            retry_host_predicate:
                              - name: envoy.retry_host_predicates.previous_hosts
                                typed_config:
                                  "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate`),
		found: healthy,
	}
}

// byDNS: Envoy resolves a name repeatedly. DNS answers with the ready replicas, as for a headless
// Service.
func byDNS(t *testing.T, r *replicas) finding {
	t.Helper()
	cluster, server := dnsCluster(t, r)
	return finding{edit: edits(t, cluster...), ports: []int{server}, found: healthy}
}

func dnsCluster(t *testing.T, r *replicas) (oldnew []string, server int) {
	t.Helper()
	server = serveDNS(t, r)
	return []string{aStaticCluster, fmt.Sprintf(`type: STRICT_DNS
      dns_lookup_family: V4_ONLY
      dns_refresh_rate: 0.1s
      typed_dns_resolver_config:
        name: envoy.network.dns_resolver.cares
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
          resolvers: [{socket_address: {address: 127.0.0.1, port_value: %d}}]
          dns_resolver_options: {no_default_search_domain: true}
`, server), theEndpoint, endpoint("weir.test", 8081)}, server
}

// byService: all connections go to one address, which forwards each new one to a ready replica,
// like a Service of Kubernetes. Envoy has one connection, so it asks one replica until that replica
// closes it.
func byService(t *testing.T, r *replicas) finding {
	t.Helper()
	var ready [2]atomic.Bool
	var all sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		all.Wait()
	})
	all.Go(func() {
		tick := time.NewTicker(checkEvery)
		defer tick.Stop()
		for {
			for i := range ready {
				ready[i].Store(r.ready(i))
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	turn := 0
	addr := relay.Start(t, func() string {
		if turn++; !ready[turn%2].Load() {
			turn++
		}
		return r.get(turn % 2).GRPC
	}, func(server, client io.Writer) (requests, replies io.Writer) { return server, client })
	return finding{
		edit: edits(t), weir: addr, oneAtATime: true,
		found: func(*testing.T, *harness.Envoy) (n int) {
			for i := range ready {
				if ready[i].Load() {
					n++
				}
			}
			return n
		},
	}
}

// serveDNS answers each question for A with the replicas that are ready, until the test ends. It
// returns its port.
func serveDNS(t *testing.T, r *replicas) int {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must.Succeed(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if answer := r.resolve(buffer[:n]); err == nil && answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// resolve answers a question; nil if the message is not a question.
func (r *replicas) resolve(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	answer := dnsmessage.Message{
		Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions,
	}
	for i := range r.all {
		if q.Type != dnsmessage.TypeA || !r.ready(i) {
			continue
		}
		answer.Answers = append(answer.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
			Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, byte(2 + i)}},
		})
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil
	}
	return packed
}
