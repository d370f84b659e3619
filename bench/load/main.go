// Command load sends load to one rate limit service and prints the rate and the latencies:
//
//	go run ./bench/load -addr 127.0.0.1:8081 -duration 20s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/loadclient"
)

func main() {
	runtime.GOMAXPROCS(1) // one thread sends larger writes, and the other cores stay free for the server
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run() error {
	o := loadclient.Options{}
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:8081", "the server's gRPC, host:port")
	flag.IntVar(&o.Conns, "conns", 4, "connections")
	flag.IntVar(&o.InFlight, "inflight", 16, "requests under way on each; with -rate the most that may be, 0: 1024")
	flag.Float64Var(&o.Rate, "rate", 0, "requests a second, whether or not the server keeps up; 0: as fast as it answers")
	flag.DurationVar(&o.WarmUp, "warmup", time.Second, "not measured")
	flag.DurationVar(&o.Duration, "duration", 10*time.Second, "measured")
	flag.DurationVar(&o.Backoff, "backoff", 0, "how long a client that was shed waits; 0: being shed is an error")
	domain := flag.String("domain", "bench", "the domain of the requests")
	actions := flag.String("actions", "a00", "the second entry of each descriptor: (user_id, user-00000000), (action, <this>)")
	users := flag.Int("users", 10000, "users")
	zipf := flag.Float64("zipf", 0, "the exponent of Zipf's law by which users come; 0: all alike")
	proxy := flag.Bool("proxy", false, "the server is a proxy: GET / with x-user-id and x-action, by HTTP/2")
	flag.Parse()
	if *users < 1 || flag.NArg() > 0 {
		return errors.New("want at least one user, and no arguments")
	}
	o.Users = loadclient.Uniform(*users)
	if *zipf > 0 {
		o.Users = loadclient.Zipf(*users, *zipf)
	}
	o.Request = loadclient.NewRequest(*domain, strings.Split(*actions, ",")...)
	if *proxy {
		o.Request = loadclient.Get(*actions)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := loadclient.Run(ctx, o)
	if err != nil {
		return err
	}
	fmt.Printf("%.0f/s  OK %d, over limit %d, shed %d, errors %d %s\np50 %v  p99 %v  p99.9 %v  this client: %.2f µs of CPU a request\n",
		r.PerSecond(), r.OK, r.Over, r.Shed, r.Errors, r.Error, r.Latency.Quantile(0.5), r.Latency.Quantile(0.99), r.Latency.Quantile(0.999),
		float64(r.CPU.Microseconds())/float64(max(r.Requests(), 1)))
	return nil
}
