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

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/freeport"
)

// Ports in the files of envoy/.
const (
	IngressPort = 10000
	stubPort    = 10001
	adminPort   = 9901
	weirPort    = 8081
)

// FindEnvoy returns the path of Envoy: $ENVOY, or envoy on PATH.
func FindEnvoy() (string, error) {
	name := os.Getenv("ENVOY")
	if name == "" {
		name = "envoy"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no Envoy: `make test` and `make demo` install one, or name its binary in $ENVOY: %w", err)
	}
	return path, nil
}

// EnvoyOptions configures an Envoy. Bootstrap, Weir and Dir are required.
type EnvoyOptions struct {
	Bootstrap string // a file like envoy/bootstrap.yaml
	Weir      string // host:port of the RateLimitService
	Dir       string // for the log and the file with the real ports
	Port      int    // the port for clients; 0: a free one
	// Upstream is the host:port of the upstream. If empty, it is the stub of the file on port
	// 10001.
	Upstream string
	// Timeout overrides Envoy's timeouts for Weir and for connections; 0 keeps those of the file.
	// On a busy machine a test needs longer timeouts than a user, because Envoy may let a request
	// pass after a timeout.
	Timeout time.Duration
	// Edit, if not nil, edits the text of the file. Ports has the ports that it adds.
	Edit  func(text string) string
	Ports []int
}

// An Envoy is a running proxy.
type Envoy struct {
	*Process
	URL   string // for clients
	Admin string // the URL of its admin page
}

// StartEnvoy starts Envoy and returns once it accepts requests.
func StartEnvoy(ctx context.Context, o EnvoyOptions) (*Envoy, error) {
	path, err := FindEnvoy()
	if err != nil {
		return nil, err
	}
	p, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	if o.Port != 0 {
		p[0] = o.Port
	}
	_, weir, err := net.SplitHostPort(o.Weir)
	if err != nil {
		return nil, fmt.Errorf("address of weir: %w", err)
	}
	conf := filepath.Join(o.Dir, "envoy.yaml")
	ports := map[int]string{
		IngressPort: strconv.Itoa(p[0]), stubPort: strconv.Itoa(p[1]), adminPort: strconv.Itoa(p[2]), weirPort: weir,
	}
	if o.Upstream != "" {
		if _, ports[stubPort], err = net.SplitHostPort(o.Upstream); err != nil {
			return nil, fmt.Errorf("address of the upstream: %w", err)
		}
	}
	for _, port := range o.Ports {
		ports[port] = strconv.Itoa(port)
	}
	text, err := os.ReadFile(o.Bootstrap)
	if err != nil {
		return nil, err
	}
	if o.Edit != nil {
		text = []byte(o.Edit(string(text)))
	}
	if err := rewrite(text, o.Bootstrap, conf, o.Timeout, ports); err != nil {
		return nil, err
	}
	// Without hot restart, several Envoys on one machine do not interfere. By default, Envoy writes
	// access logs every 10 s.
	cmd := exec.Command(path, "-c", conf, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning",
		"--file-flush-interval-msec", "100")
	e := &Envoy{URL: "http://" + freeport.Addr(p[0]), Admin: "http://" + freeport.Addr(p[2])}
	e.Process, err = Start(ctx, cmd, filepath.Join(o.Dir, "envoy.log"), func(ctx context.Context) error {
		// Envoy is ready shortly before it listens.
		if _, err := Get(ctx, e.Admin+"/ready"); err != nil {
			return err
		}
		return Listens(freeport.Addr(p[0]))(ctx)
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Validate runs Envoy's validation of a bootstrap file.
func Validate(ctx context.Context, bootstrap string) error {
	path, err := FindEnvoy()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, "--mode", "validate", "--log-level", "warning", "-c", bootstrap).CombinedOutput()
	if err != nil {
		return fmt.Errorf("envoy rejects %s: %w\n%s", bootstrap, err, out)
	}
	return nil
}

// rewrite writes a bootstrap file with other ports. It fails if the file has any other port, which
// might be in use.
func rewrite(text []byte, from, to string, timeout time.Duration, ports map[int]string) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	found := map[int]bool{}
	var strange error
	walk(&doc, func(key string, v *yaml.Node, siblings map[string]*yaml.Node) {
		switch {
		case key == "port_value":
			old, _ := strconv.Atoi(v.Value)
			port, ok := ports[old]
			if !ok {
				strange = fmt.Errorf("%s:%d: port %s is not one that the harness knows", from, v.Line, v.Value)
			}
			v.Value, found[old] = port, true
		case timeout > 0 && (key == "connect_timeout" || key == "timeout" && siblings["rate_limit_service"] != nil):
			v.Value = fmt.Sprintf("%gs", timeout.Seconds())
		}
	})
	if strange != nil {
		return strange
	}
	for port := range ports {
		if !found[port] {
			return fmt.Errorf("%s: no port_value %d to replace", from, port)
		}
	}
	b, err := yaml.Marshal(&doc)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o600)
}

// walk calls f for each key of each mapping under n.
func walk(n *yaml.Node, f func(key string, v *yaml.Node, siblings map[string]*yaml.Node)) {
	if n.Kind == yaml.MappingNode {
		siblings := map[string]*yaml.Node{}
		for i := 0; i < len(n.Content); i += 2 {
			siblings[n.Content[i].Value] = n.Content[i+1]
		}
		for i := 0; i < len(n.Content); i += 2 {
			f(n.Content[i].Value, n.Content[i+1], siblings)
		}
	}
	for _, c := range n.Content {
		walk(c, f)
	}
}

// An Answer is a response through Envoy.
type Answer struct {
	Status     int
	Limited    bool   // x-envoy-ratelimited
	Limit      string // x-ratelimit-limit, like "3, 3;w=5"; empty when no rule matched
	Remaining  int    // x-ratelimit-remaining; -1: missing
	Reset      int    // x-ratelimit-reset, seconds; -1: missing
	RetryAfter int    // retry-after, seconds; -1: missing
}

// Do sends one request of user for action through Envoy. If user or action is empty, its header is
// omitted.
func (e *Envoy) Do(ctx context.Context, user, action string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL, nil)
	if err != nil {
		return Answer{}, err
	}
	if user != "" {
		req.Header.Set("x-user-id", user)
	}
	if action != "" {
		req.Header.Set("x-action", action)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return Answer{}, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	err = errors.Join(err, res.Body.Close())
	a := Answer{
		Status:  res.StatusCode,
		Limited: res.Header.Get("x-envoy-ratelimited") == "true",
		Limit:   res.Header.Get("x-ratelimit-limit"),
	}
	for name, v := range map[string]*int{
		"x-ratelimit-remaining": &a.Remaining, "x-ratelimit-reset": &a.Reset, "retry-after": &a.RetryAfter,
	} {
		*v = -1
		if s := res.Header.Get(name); s != "" {
			n, bad := strconv.Atoi(s)
			if bad != nil {
				err = errors.Join(err, fmt.Errorf("header %s: %w", name, bad))
			}
			*v = n
		}
	}
	return a, err
}

// Wait waits for the retry-after of a denied request.
func (a Answer) Wait(ctx context.Context) error {
	if a.RetryAfter < 1 {
		return fmt.Errorf("no retry-after to wait for in %+v", a)
	}
	return backoff.Sleep(ctx, time.Duration(a.RetryAfter)*time.Second)
}
