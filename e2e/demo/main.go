// Command demo demonstrates Weir behind a real Envoy. It sends one request a second under each
// algorithm of envoy/rules.yaml. Then it exceeds each limit, waits as the response says, and shows
// that the next request is admitted. The servers stay up for manual requests.
//
//	make demo                 counters in memory
//	make demo STORE=redis     counters in a real Redis, which the demo starts
//	make demo ARGS=--once     ends by itself, with exit code 0 if every response was as expected
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
	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/freeport"
	"github.com/weir-rls/weir/internal/redistest"
)

// An act is a client of one rule of envoy/rules.yaml.
type act struct {
	action, algorithm, rule string
	limit                   string // the expected x-ratelimit-limit
}

var acts = []act{
	{"login", "fixed window", "3 in 5 s; the window begins with the first login", "3, 3;w=5"},
	{"reply", "sliding log", "3 in any 4 s; each counts for 4 s", "3, 3;w=4"},
	{"post", "funnel", "a burst of 3, then one every 2 s", "3, 3;w=6"},
}

const (
	burst  = 3 // requests that each rule admits at once
	rounds = 10
	// interval is the time between two rounds. It is not a whole second, so that no request
	// coincides with the end of a window.
	interval = 1050 * time.Millisecond
)

func main() {
	once := flag.Bool("once", false, "end after the run")
	store := flag.String("store", "memory", "the store of the counters: memory or redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *store, *once)
	stop()
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		os.Exit(130) // interrupted during the run
	default:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// run starts the servers, plays all acts and stops the servers.
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
		Timeout: time.Second, // a busy machine
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopped("envoy", envoy.Process)) }()

	introduce(weir, envoy, redis)
	if err := play(ctx, envoy); err != nil {
		return err
	}
	fmt.Printf("\nAll responses are as expected.\n")
	if once {
		return nil
	}
	return stay(ctx, weir, envoy)
}

// startStore starts Redis if store is redis. For memory, addr is "".
func startStore(store string) (addr string, stop func(), err error) {
	switch store {
	case "memory":
		return "", func() {}, nil
	case "redis":
		if addr, err = redistest.FindFreeAddr(); err != nil {
			return "", nil, err
		}
		server, err := redistest.Run(addr)
		if err != nil {
			return "", nil, err
		}
		return addr, server.Stop, nil
	default:
		return "", nil, fmt.Errorf("unknown store %q: want memory or redis", store)
	}
}

// introduce prints the addresses.
func introduce(weir *harness.Weir, envoy *harness.Envoy, redis string) {
	counters := "counters in memory"
	if redis != "" {
		counters = "counters in Redis at " + redis
	}
	fmt.Printf("Envoy    %s\nWeir     gRPC %s, %s\nMetrics  %s/metrics\nRules    envoy/rules.yaml\n",
		envoy.URL, weir.GRPC, counters, weir.HTTP)
	if !strings.HasSuffix(envoy.URL, ":"+strconv.Itoa(harness.IngressPort)) {
		fmt.Printf("Port %d is in use, so Envoy listens on another.\n", harness.IngressPort)
	}
}

// stay prints the log of Weir until ctx ends. It returns an error if a server exits first.
func stay(ctx context.Context, weir *harness.Weir, envoy *harness.Envoy) error {
	fmt.Printf(`
Now try it: several times in a row, as any user, with the action login, reply or post

  curl -i -H 'x-user-id: alice' -H 'x-action: login' %s

Edit envoy/rules.yaml, and Weir loads it within two seconds. Its log follows. Ctrl-C ends the demo.

`, envoy.URL)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for printed := len(weir.Log()); ; {
		select {
		case <-ctx.Done():
			fmt.Println()
			return nil
		case <-weir.Done():
			return fmt.Errorf("weir stopped; its last log lines:\n%s", weir.Tail())
		case <-envoy.Done():
			return fmt.Errorf("envoy stopped; its last log lines:\n%s", envoy.Tail())
		case <-tick.C:
			log := weir.Log()
			fmt.Print(log[min(printed, len(log)):])
			printed = len(log)
		}
	}
}

// play sends a request for each act in each round. Then each act exceeds its limit, waits for
// retry-after and is admitted.
func play(ctx context.Context, envoy *harness.Envoy) error {
	fmt.Printf("\nOne request a second for each action: the status, then the remaining requests or retry-after.\n\n  second")
	for _, a := range acts {
		fmt.Printf("  %-20s", a.action+", "+a.algorithm)
	}
	fmt.Println()
	start := time.Now()
	for round := range rounds {
		if err := backoff.Sleep(ctx, time.Until(start.Add(time.Duration(round)*interval))); err != nil {
			return err
		}
		fmt.Printf("  %6.1f", time.Since(start).Seconds())
		for _, a := range acts {
			got, err := a.send(ctx, envoy)
			if err != nil {
				return err
			}
			if round < burst && got.Status != 200 {
				return fmt.Errorf("%s: request %d has status %d, want 200; was envoy/rules.yaml changed?", a.action, round+1, got.Status)
			}
			fmt.Printf("  %s", cell(got))
		}
		fmt.Println()
	}
	fmt.Println()
	results := make(chan error, len(acts))
	for _, a := range acts {
		go func() { results <- a.obey(ctx, envoy) }()
	}
	var err error
	for range acts {
		err = errors.Join(err, <-results)
	}
	return err
}

// obey sends requests until one is denied, waits for its retry-after, and expects the next request
// to be admitted.
func (a act) obey(ctx context.Context, envoy *harness.Envoy) error {
	var denied harness.Answer
	for range 2 * burst {
		var err error
		if denied, err = a.send(ctx, envoy); err != nil {
			return err
		}
		if denied.Status == 429 {
			break
		}
	}
	if denied.Status != 429 || denied.RetryAfter < 1 {
		return fmt.Errorf("%s: %d requests at once: the last is %+v, want status 429 with retry-after", a.action, 2*burst, denied)
	}
	if err := denied.Wait(ctx); err != nil {
		return err
	}
	got, err := a.send(ctx, envoy)
	if err != nil {
		return err
	}
	fmt.Printf("  %s (%s): denied with retry-after %d s; after that wait: %d\n", a.action, a.rule, denied.RetryAfter, got.Status)
	if got.Status != 200 {
		return fmt.Errorf("%s: status %d after the wait of %d s, want 200", a.action, got.Status, denied.RetryAfter)
	}
	return nil
}

// send sends one request.
func (a act) send(ctx context.Context, envoy *harness.Envoy) (harness.Answer, error) {
	got, err := envoy.Do(ctx, "demo", a.action)
	if err == nil && got.Limit != a.limit {
		err = fmt.Errorf("x-ratelimit-limit is %q, want %q; was envoy/rules.yaml changed?", got.Limit, a.limit)
	}
	if err != nil {
		return got, fmt.Errorf("%s: %w", a.action, err)
	}
	return got, nil
}

// cell formats a cell of the table, 20 columns wide. A 429 is red on a terminal.
func cell(got harness.Answer) string {
	if got.Status == 429 {
		text := fmt.Sprintf("%-20s", fmt.Sprintf("%d  wait %d s", got.Status, got.RetryAfter))
		if useColors() {
			return "\x1b[31m" + text + "\x1b[0m"
		}
		return text
	}
	return fmt.Sprintf("%-20s", fmt.Sprintf("%d  %d left", got.Status, got.Remaining))
}

// useColors reports whether the output is a terminal and NO_COLOR is not set.
func useColors() bool {
	info, err := os.Stdout.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}

// ifFree returns port if it is free, and otherwise 0.
func ifFree(port int) int {
	l, err := net.Listen("tcp", freeport.Addr(port))
	if err != nil {
		return 0
	}
	_ = l.Close()
	return port
}

// stopped stops a server. It returns an error unless the exit code is 0.
func stopped(name string, p *harness.Process) error {
	code, err := p.Stop()
	if err == nil && code != 0 {
		err = fmt.Errorf("%s stopped with exit code %d; its last log lines:\n%s", name, code, p.Tail())
	}
	return err
}
