// Command demo shows Weir at work: it starts Weir and a real Envoy in front of it, runs into each limit of envoy/rules.yaml,
// waits as long as it was told, and comes through again. Then it stays up to be tried by hand.
//
//	make demo                 memory store
//	make demo STORE=redis     a real Redis, started for the demo
//	make demo ARGS=--once     ends by itself: exit code 0 if everything was as it should be
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/redistest"
)

// An act runs into one limit of envoy/rules.yaml.
type act struct {
	action, algorithm, rule string
	limit                   string // what x-ratelimit-limit must say
}

const burst = 3 // what each rule lets through at once

var acts = []act{
	{"login", "fixed window", "3 in 5 s from the first try on, then the count starts again", "3, 3;w=5"},
	{"reply", "sliding log", "3 in any 4 s, each makes room when it is 4 s old", "3, 3;w=4"},
	{"post", "funnel", "holds 3, leaks one every 2 s", "3, 3;w=6"},
}

func main() {
	once := flag.Bool("once", false, "end after the run instead of staying up")
	store := flag.String("store", "memory", "where Weir keeps its counters: memory or redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *store, *once)
	stop()
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		os.Exit(130) // interrupted before the run was over
	default:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// run plays all acts in servers of its own, and ends these.
func run(ctx context.Context, store string, once bool) (err error) {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	redis, stopRedis, err := startStore(store)
	if err != nil {
		return err
	}
	defer stopRedis()
	binary, err := harness.BuildWeir(ctx, dir)
	if err != nil {
		return err
	}
	rules := filepath.Join(root, "envoy", "rules.yaml")
	weir, err := harness.StartWeir(ctx, harness.WeirOptions{Binary: binary, Rules: rules, Dir: dir, Redis: redis})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopped("weir", weir.Process)) }()
	envoy, err := harness.StartEnvoy(ctx, harness.EnvoyOptions{
		Bootstrap: filepath.Join(root, "envoy", "bootstrap.yaml"), Weir: weir.GRPC, Dir: dir, Port: ifFree(harness.IngressPort),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopped("envoy", envoy.Process)) }()

	introduce(weir, envoy, redis)
	for _, a := range acts {
		if err := a.play(ctx, envoy); err != nil {
			return fmt.Errorf("%s: %w", a.action, err)
		}
	}
	fmt.Printf("\nAll three as expected.\n")
	if once {
		return nil
	}
	return stay(ctx, weir, envoy)
}

// startStore starts a Redis where the store is one. Its address is "" for the memory store.
func startStore(store string) (addr string, stop func(), err error) {
	switch store {
	case "memory":
		return "", func() {}, nil
	case "redis":
		if addr, err = redistest.Free(); err != nil {
			return "", nil, err
		}
		server, err := redistest.Run(addr)
		if err != nil {
			return "", nil, err
		}
		return addr, server.Stop, nil
	default:
		return "", nil, fmt.Errorf("no store %q: memory or redis", store)
	}
}

// introduce prints who listens where.
func introduce(weir *harness.Weir, envoy *harness.Envoy, redis string) {
	where := "counters in memory"
	if redis != "" {
		where = "counters in Redis at " + redis
	}
	fmt.Printf("Envoy    %s\nWeir     gRPC %s, %s\nMetrics  %s/metrics\nRules    envoy/rules.yaml\n",
		envoy.URL, weir.GRPC, where, weir.HTTP)
	if !strings.HasSuffix(envoy.URL, ":"+strconv.Itoa(harness.IngressPort)) {
		fmt.Printf("Port %d is taken, so Envoy listens on another one.\n", harness.IngressPort)
	}
}

// stay prints what Weir says until ctx ends, which is as it should be, or a server does.
func stay(ctx context.Context, weir *harness.Weir, envoy *harness.Envoy) error {
	fmt.Printf(`
Now you: a few times in a row, as alice or as anybody else, with the action login, reply or post

  curl -i -H 'x-user-id: alice' -H 'x-action: login' %s

Change a limit in envoy/rules.yaml and it holds at once; what Weir says of it comes here. Ctrl-C ends the demo.

`, envoy.URL)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := len(weir.Log()); ; {
		select {
		case <-ctx.Done():
			fmt.Println()
			return nil
		case <-weir.Done():
			return fmt.Errorf("weir has ended; the end of its log:\n%s", weir.Tail())
		case <-envoy.Done():
			return fmt.Errorf("envoy has ended; the end of its log:\n%s", envoy.Tail())
		case <-tick.C:
			log := weir.Log()
			fmt.Print(log[min(said, len(log)):])
			said = len(log)
		}
	}
}

// play spends the limit, runs into it, waits as told and comes through.
func (a act) play(ctx context.Context, envoy *harness.Envoy) error {
	fmt.Printf("\n%s: %s, %s\n", a.action, a.algorithm, a.rule)
	fmt.Printf("  status  x-ratelimit-limit  x-ratelimit-remaining  x-ratelimit-reset  retry-after\n")
	for i := range burst {
		got, err := a.send(ctx, envoy)
		if err != nil {
			return err
		}
		if got.Status != 200 || got.Limit != a.limit || got.Remaining != burst-1-i {
			return fmt.Errorf("request %d of %d: got %d with limit %q and %d remaining, want 200 with limit %q and %d remaining; "+
				"was envoy/rules.yaml changed?", i+1, burst, got.Status, got.Limit, got.Remaining, a.limit, burst-1-i)
		}
	}
	denied, err := a.send(ctx, envoy)
	if err != nil {
		return err
	}
	if denied.Status != 429 || denied.Limit != a.limit || denied.Remaining != 0 || denied.RetryAfter < 1 {
		return fmt.Errorf("one more than the limit: want 429 with limit %q, 0 remaining and a retry-after", a.limit)
	}
	fmt.Printf("  told to wait %d s, waiting ...\n", denied.RetryAfter)
	if err := denied.Wait(ctx); err != nil {
		return err
	}
	got, err := a.send(ctx, envoy)
	if err == nil && got.Status != 200 {
		err = fmt.Errorf("waited %d s as told: want 200", denied.RetryAfter)
	}
	return err
}

// send sends one request and prints what came back.
func (a act) send(ctx context.Context, envoy *harness.Envoy) (harness.Answer, error) {
	got, err := envoy.Do(ctx, "demo", a.action)
	if err == nil {
		line := fmt.Sprintf("  %-6d  %-17s  %-21s  %-17s  %s", got.Status, got.Limit, number(got.Remaining), number(got.Reset), number(got.RetryAfter))
		fmt.Println(strings.TrimRight(line, " "))
	}
	return got, err
}

// number prints a header's value; -1 stands for a header that is not there.
func number(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// ifFree is port if nothing listens on it, else 0.
func ifFree(port int) int {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0
	}
	_ = l.Close()
	return port
}

// stopped ends a server, which is an error unless it ends well.
func stopped(name string, p *harness.Process) error {
	code, err := p.Stop()
	if err == nil && code != 0 {
		err = fmt.Errorf("%s ended with exit code %d; the end of its log:\n%s", name, code, p.Tail())
	}
	return err
}
