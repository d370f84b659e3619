// Command bench measures Weir, a bare grpc-go server and envoyproxy/ratelimit in turns, each as a
// process on loopback. It writes docs/benchmarks.md.
//
//	make bench                                  every row, at most 20 minutes
//	make bench ROWS='one|five' ROUNDS=5 SECONDS=5
//	make bench-scale                            the long ones
//	go run ./bench -before=PATH -rounds=10      this tree and another binary of Weir, in turns
//	go run ./bench -render                      docs/benchmarks.md from the results there are
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
)

func main() {
	runtime.GOMAXPROCS(1) // one thread sends larger writes, and the other cores stay free for the server
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	scale := flag.Bool("scale", false, "measure the long rows")
	only := flag.String("rows", "", "a regular expression: the rows to measure")
	rounds := flag.Int("rounds", 3, "the number of rounds; tables show medians")
	seconds := flag.Float64("seconds", 3, "the length of a measurement, after one second of warm-up")
	render := flag.Bool("render", false, "write docs/benchmarks.md from earlier results and measure nothing")
	before := flag.String("before", "", "a binary of Weir: compare this tree with it, in turns, and print a table")
	who := flag.String("subjects", "", "a regular expression: with -before, the subjects to compare")
	flag.Parse()
	if *rounds < 1 || *seconds <= 0 || flag.NArg() > 0 {
		return errors.New("-rounds must be at least 1 and -seconds above 0; arguments are not allowed")
	}
	rowNames, err := regexp.Compile("^(" + *only + ")$")
	if err != nil {
		return err
	}
	subjects, err := regexp.Compile("^(" + *who + ")$")
	if err != nil {
		return err
	}
	root, err := harness.Root()
	if err != nil {
		return err
	}
	all := rows()
	if *scale {
		all = scaleRows()
	}
	all = slices.DeleteFunc(all, func(r row) bool { return *only != "" && !rowNames.MatchString(r.name) })
	if len(all) == 0 {
		return errors.New("-rows matches no row: see rows.go")
	}
	d := span{warmUp: time.Second, duration: time.Duration(*seconds * float64(time.Second))}
	if *before != "" {
		return withBinaries(ctx, func(b binaries) error {
			c := comparison{out: os.Stdout, binaries: b, oldBinary: *before, rounds: *rounds, span: d}
			return c.compareRows(ctx, all, func(s subject) bool { return *who == "" || subjects.MatchString(string(s)) })
		})
	}
	r, err := readResults(filepath.Join(root, "bench", "results.jsonl"))
	if err != nil {
		return err
	}
	if !*render {
		err := withBinaries(ctx, func(b binaries) error {
			began, machine := time.Now().UTC().Format(time.RFC3339), describe(ctx, b)
			fmt.Println(machine)
			return (&runner{binaries: b, began: began, machine: machine, rounds: *rounds, span: d, results: r}).rows(ctx, all)
		})
		if err != nil {
			return err
		}
	}
	return publish(r, filepath.Join(root, "docs"))
}

// withBinaries calls f with the servers to measure, built into a folder that it removes afterwards.
func withBinaries(ctx context.Context, f func(binaries) error) (err error) {
	dir, err := os.MkdirTemp("", "weir-bench-bin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, err := build(ctx, dir)
	if err != nil {
		return err
	}
	return f(b)
}

// A runner measures rows and keeps their results.
type runner struct {
	binaries       binaries
	began, machine string // in each measurement
	rounds         int
	span           span
	results        *results
}

func (r *runner) rows(ctx context.Context, all []row) error {
	for _, row := range all {
		seen, err := r.row(ctx, &row)
		if err != nil {
			return fmt.Errorf("row %s: %w", row.name, err)
		}
		if err := r.results.replace(row.name, seen); err != nil {
			return err
		}
	}
	return nil
}

// row measures a row in rounds: each round measures every subject once.
func (r *runner) row(ctx context.Context, row *row) (seen []*measurement, err error) {
	for round := 1; round <= r.rounds; round++ {
		add := func(measured []*measurement, err error) error {
			for _, m := range measured {
				m.Run, m.Machine, m.Row, m.Round = r.began, r.machine, row.name, round
				fmt.Println(m)
			}
			seen = append(seen, measured...)
			return err
		}
		run := row.commands
		if row.gobench != nil {
			run = row.gobench.run
		}
		if run != nil {
			if err := add(run(ctx, r.binaries)); err != nil {
				return nil, err
			}
		}
		for _, l := range row.cases {
			if l.atBest {
				best, found := r.results.median("one", ratelimit, 0, perSecond)
				if !found {
					return nil, errors.New(`row "paced" needs the highest rate of envoyproxy/ratelimit: measure row "one" first`)
				}
				l.rate = best
			}
			for _, group := range row.sides(r.binaries) {
				if err := add(r.group(ctx, group, l, round)); err != nil {
					return nil, err
				}
			}
		}
	}
	return seen, nil
}

func (r *runner) group(ctx context.Context, group []side, l load, round int) ([]*measurement, error) {
	if len(group) > 1 {
		return measureInterleaved(ctx, group, l, r.span, round)
	}
	m, err := measure(ctx, group[0], l, r.span)
	return []*measurement{m}, err
}

// build builds Weir and the bare server. make provides the other servers in environment variables.
func build(ctx context.Context, dir string) (binaries, error) {
	b := binaries{bare: filepath.Join(dir, "bare"), ratelimit: os.Getenv("INCUMBENT"), redis: os.Getenv("REDIS_SERVER")}
	if b.ratelimit == "" || b.redis == "" {
		return b, errors.New(`no $INCUMBENT or no $REDIS_SERVER: run make bench, or eval "$(tools/ensure envoy redis incumbent)"`)
	}
	var err error
	if b.weir, err = harness.BuildWeir(ctx, dir); err != nil {
		return b, err
	}
	root, err := harness.Root()
	if err != nil {
		return b, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.bare, "./bench/bare")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("build bare: %w\n%s", err, out)
	}
	return b, nil
}

// describe returns the machine and the versions of the servers.
func describe(ctx context.Context, b binaries) string {
	cpu := "CPU"
	info, _ := os.ReadFile("/proc/cpuinfo") // missing on other systems than Linux
	if model := regexp.MustCompile(`(?m)^model name\s*: (.+)$`).FindSubmatch(info); model != nil {
		cpu = string(model[1])
	}
	said := func(name string, args ...string) string {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return name + "?"
		}
		return strings.TrimSpace(string(out))
	}
	redis := regexp.MustCompile(`v=(\S+)`).FindStringSubmatch(said(b.redis, "--version"))
	return fmt.Sprintf("%d cores of %s, Linux %s, %s, Redis %s, Weir %s", runtime.NumCPU(), cpu, said("uname", "-r"),
		runtime.Version(), strings.Join(redis[min(1, len(redis)):], ""), said("git", "describe", "--always", "--dirty"))
}
