package manifests

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	extratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// binary is Weir, built once for all tests.
var binary, removeBinary = harness.BuildOnce()

func TestMain(m *testing.M) { os.Exit(harness.Run(m, "manifests", removeBinary)) }

// stepTimeout is far longer than any step takes on a busy machine.
const stepTimeout = 2 * time.Minute

// weirCommand runs weir with arguments and returns its output.
func weirCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	path := binary(t) // the first build may take longer than the command
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	return string(out), err
}

func TestShippedRulesHaveNoErrors(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		if weirOf(t, all) == nil || rulesByXDS(t, all) {
			return
		}
		dir := t.TempDir()
		for name, text := range all.generated(t, "weir-rules").Data {
			must.Write(t, filepath.Join(dir, name), text)
		}
		if out, err := weirCommand(t, "check", "--strict", dir); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// A pod is the container of an overlay's Deployment, run as a process with the container's
// variables. Its files are in a folder of the test, in the layout of a mounted ConfigMap. The test
// chooses ports and addresses.
type pod struct {
	*harness.Process
	t          *testing.T
	ports      map[string]string // by name
	mounts     string            // the folder used as /
	trusted    *tls.Config       // for clients; nil: no TLS
	generation int
}

// run starts a pod and returns once its probes succeed.
func run(t *testing.T, all overlay, env map[string]string) *pod {
	t.Helper()
	p := &pod{t: t, ports: map[string]string{}, mounts: t.TempDir()}
	deployment := weirOf(t, all)
	c := deployment.Spec.Template.Spec.Containers[0]
	free := harness.MustFreePorts(t, 4)
	for i, port := range c.Ports {
		p.ports[port.Name] = fmt.Sprint(free[i])
	}
	for _, v := range deployment.Spec.Template.Spec.Volumes {
		for _, m := range c.VolumeMounts {
			switch {
			case m.Name != v.Name:
			case v.ConfigMap != nil:
				p.mount(m.MountPath, named[*corev1.ConfigMap](all, v.ConfigMap.Name).Data)
			case v.EmptyDir != nil:
				must.Succeed(t, os.MkdirAll(p.mounts+m.MountPath, 0o755))
			}
		}
	}
	set := environment(t, all, deployment)
	for name, value := range set {
		for _, m := range c.VolumeMounts {
			if strings.HasPrefix(value, m.MountPath) {
				set[name] = p.mounts + value
			}
		}
	}
	maps.Copy(set, map[string]string{
		"HOST": "127.0.0.1", "GRPC_HOST": "127.0.0.1", "DEBUG_PORT": fmt.Sprint(free[3]), "PORT": p.ports["http"],
		"GRPC_PORT": p.ports["grpc"], "PROMETHEUS_ADDR": "127.0.0.1:" + p.ports["metrics"], "DRAIN_DELAY": "0s",
		"STORE_TIMEOUT": "1m", // this machine may be busy with other tests
	})
	maps.Copy(set, env)
	cmd := exec.Command(binary(t))
	for name, value := range set {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	p.Process = harness.MustStart(t, cmd, func(context.Context) error {
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if code, _ := p.get(probe.HTTPGet.Port.StrVal, probe.HTTPGet.Path); code != 200 {
				return fmt.Errorf("%s is %d", probe.HTTPGet.Path, code)
			}
		}
		return nil
	})
	return p
}

// mount writes files as the kubelet does: into a new folder, to which it then switches the link
// ..data.
func (p *pod) mount(path string, files map[string]string) {
	p.t.Helper()
	p.generation++
	dir, version := p.mounts+path, fmt.Sprintf("..%d", p.generation)
	for name, text := range files {
		must.Write(p.t, filepath.Join(dir, version, name), text)
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			p.t.Fatal(err)
		}
	}
	must.Succeed(p.t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	must.Succeed(p.t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

// client keeps no idle connections, which would delay a server's shutdown.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: stepTimeout}

func (p *pod) get(port, path string) (int, string) {
	r, err := client.Get("http://127.0.0.1:" + p.ports[port] + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(body)
}

// ask sends one hit, as Envoy does, for the entries "key=value".
func (p *pod) ask(domain string, entries ...string) (rlsv3.RateLimitResponse_Code, error) {
	p.t.Helper()
	tuple := &extratelimitv3.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		tuple.Entries = append(tuple.Entries, &extratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	trust := insecure.NewCredentials()
	if p.trusted != nil {
		trust = credentials.NewTLS(p.trusted.Clone())
	}
	conn, err := grpc.NewClient("127.0.0.1:"+p.ports["grpc"], grpc.WithTransportCredentials(trust))
	must.Succeed(p.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(p.t.Context(), stepTimeout)
	defer cancel()
	request := &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*extratelimitv3.RateLimitDescriptor{tuple}}
	r, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, request)
	return r.GetOverallCode(), err
}

// countAllowed sends hits and returns the number of allowed ones. It fails the test if an allowed
// hit follows a denied one.
func (p *pod) countAllowed(times int, domain string, entries ...string) (allowed int) {
	p.t.Helper()
	for i := range times {
		switch code, err := p.ask(domain, entries...); {
		case err == nil && code == rlsv3.RateLimitResponse_OK && allowed == i:
			allowed++
		case err != nil || code != rlsv3.RateLimitResponse_OVER_LIMIT:
			p.t.Fatalf("hit %d: %v, %v", i, code, err)
		}
	}
	return allowed
}

// storeOf starts the store of an overlay and returns the settings with its address.
func storeOf(t *testing.T, all overlay) map[string]string {
	t.Helper()
	set := settingsOf(t, all, weirOf(t, all))
	if set["BACKEND_TYPE"] == "memory" {
		return nil
	}
	switch set["REDIS_TYPE"] {
	case "CLUSTER":
		return map[string]string{"REDIS_URL": redistest.StartCluster(t, 3).Addrs()[0]}
	case "SENTINEL":
		name, _, _ := strings.Cut(set["REDIS_URL"], ",")
		return map[string]string{"REDIS_URL": name + "," + redistest.StartSentinels(t, name, 3, redistest.Secrets{}).Addrs()[0]}
	default:
		return map[string]string{"REDIS_URL": redistest.Start(t).Addr}
	}
}

// certificates issues the certificates of an overlay, as cert-manager would. Without TLS in the
// overlay it returns nil.
func certificates(t *testing.T, all overlay) (map[string]string, *tls.Config) {
	t.Helper()
	if settingsOf(t, all, weirOf(t, all))["GRPC_SERVER_USE_TLS"] != "true" {
		return nil, nil
	}
	a := certtest.New(t)
	server, client := a.Issue(t, "weir.weir.svc"), a.Issue(t, "weir-client")
	return map[string]string{"GRPC_SERVER_TLS_CERT": server.Cert, "GRPC_SERVER_TLS_KEY": server.Key, "GRPC_CLIENT_TLS_CACERT": a.File},
		&tls.Config{RootCAs: a.Pool(), ServerName: "weir.weir.svc", NextProtos: []string{"h2"}, Certificates: []tls.Certificate{client.Load(t)}}
}

func TestManifestsBecomeReadyAndAnswer(t *testing.T) {
	eachOverlay(t, func(t *testing.T, all overlay) {
		if weirOf(t, all) == nil || rulesByXDS(t, all) {
			return
		}
		env, trusted := certificates(t, all)
		if env == nil {
			env = map[string]string{}
		}
		maps.Copy(env, storeOf(t, all))
		p := run(t, all, env)
		p.trusted = trusted
		if got := p.countAllowed(7, domainOf(t, all), "user_id=alice", "action=login"); got != 5 {
			t.Errorf("%d logins allowed in a minute, want 5", got)
		}
		if _, text := p.get("metrics", "/metrics"); !strings.Contains(text, `weir_hits_total{domain="weir"`) {
			t.Errorf("/metrics: %.300s", text)
		}
		if strings.Contains(p.Log(), "has no effect") {
			t.Errorf("a setting has no effect:\n%s", p.Log())
		}
		if trusted != nil {
			checkTLS(t, p, trusted)
		}
	})
}

// checkTLS fails the test unless only clients with the overlay's certificate for Envoy can connect.
func checkTLS(t *testing.T, p *pod, trusted *tls.Config) {
	t.Helper()
	stranger := trusted.Clone()
	stranger.Certificates = nil
	if err := handshake(p, trusted); err != nil {
		t.Errorf("with the certificate for Envoy: %v", err)
	}
	if err := handshake(p, stranger); err == nil {
		t.Error("a client without a certificate could connect")
	}
}

// handshake connects and reads the server's first HTTP/2 frame. With TLS 1.3 a rejected client gets
// an error only then.
func handshake(p *pod, config *tls.Config) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: stepTimeout}, "tcp", "127.0.0.1:"+p.ports["grpc"], config)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(stepTimeout)); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 9))
	return err
}

func TestRulesChangeReachesRunningPod(t *testing.T) {
	all := build(t, k8s+"/overlays/memory")
	p := run(t, all, nil)
	rules := all.generated(t, "weir-rules").Data["rules.yaml"]
	if got := p.countAllowed(6, "weir", "user_id=bob", "action=login"); got != 5 {
		t.Errorf("%d logins allowed, want 5", got)
	}
	changed := strings.Replace(rules, "requests_per_unit: 5}", "requests_per_unit: 8}", 1)
	p.mount("/etc/weir/rules", map[string]string{"rules.yaml": changed})
	must.Until(t, "the change of rules", func() bool { return strings.Count(p.Log(), "rules loaded") == 2 })
	if got := p.countAllowed(9, "weir", "user_id=carol", "action=login"); got != 8 {
		t.Errorf("%d logins allowed, want 8", got)
	}
}

func TestReplicasShareCounters(t *testing.T) {
	all := build(t, k8s+"/overlays/redis")
	store := storeOf(t, all)
	replicas := []*pod{run(t, all, store), run(t, all, store)}
	allowed := 0
	for i := range 8 {
		if code, err := replicas[i%2].ask("weir", "user_id=dave", "action=login"); err == nil && code == rlsv3.RateLimitResponse_OK {
			allowed++
		}
	}
	if allowed != 5 {
		t.Errorf("%d logins allowed by two replicas, want 5", allowed)
	}
	if addrs := slices.Collect(maps.Values(store)); len(addrs) != 1 {
		t.Errorf("%v", addrs)
	}
}
